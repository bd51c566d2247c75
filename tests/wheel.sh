# Run in an empty folder with the wheel alone installed, by `make dist`: what a user does first.
set -ex
torchcaps models > /dev/null
torchcaps check --help > /dev/null
torchcaps train --model peer_sign_em --option bias=true --data sign --set train_images=2000 --epochs 1 --out run
torchcaps eval run
torchcaps dissect run --out page.html
cat > own.toml <<END
model = "peer_sign_em"
data = "sign"
epochs = 1
train_images = 2000
measure = ["accuracy"]

[options]
bias = true

[vary]
seed = [0, 1]
END
torchcaps study run own.toml
torchcaps demo
# The claims of the papers are not in it, which it says in a sentence.
if torchcaps study claims > claims.txt 2>&1; then exit 1; fi
! grep Traceback claims.txt
