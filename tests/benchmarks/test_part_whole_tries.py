"""Every try is a network and images that can be made."""

import dataclasses

import part_whole_trees
import part_whole_tries


def test_every_try_can_be_made():
    for kind, options, knobs, epochs in part_whole_tries.TRIES.values():
        dataclasses.replace(part_whole_trees.SPEC, **knobs)
        usual = part_whole_trees.ROUTINGS[kind]
        part_whole_trees.ROUTINGS[kind] = {**usual, **options}
        try:
            assert part_whole_trees.network(kind, 10)
        finally:
            part_whole_trees.ROUTINGS[kind] = usual
        assert epochs >= 1
