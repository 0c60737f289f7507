#!/usr/bin/env python3
"""The epoch order of crates/task/src/random.rs, written a second time to judge the first.

Prints permutation(7, 0, 8) and permutation(7, 1, 8), the golden values of its test.
"""

MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def permutation(seed, epoch, count):
    state = mix((mix(seed ^ fnv1a(b"epoch order")) + epoch) & MASK)

    def below(bound):
        nonlocal state
        while True:
            state = (state + 0x9E3779B97F4A7C15) & MASK
            product = mix(state) * bound
            if (product & MASK) >= (-bound & MASK) % bound:
                return product >> 64

    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = below(i + 1)
        order[i], order[j] = order[j], order[i]
    return order


print(permutation(7, 0, 8), permutation(7, 1, 8))
