//! Random numbers from a seed.

/// SplitMix64: the same numbers for the same seed, on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator for one case of a seed.
    pub(crate) fn of_case(seed: u64, number: u64) -> Random {
        let mut random = Random(seed);
        random.0 = random.next().wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`, which is above zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True with a probability of 1 in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
