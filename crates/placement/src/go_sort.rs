//! Go's `sort.Slice`, with the same order of ties.
//!
//! It is not stable: the order of equal elements depends on the algorithm. kube-scheduler sorts preemption victims with
//! it and reprieves them in that order, so the order decides which pods are evicted.

/// Go's thresholds, such as how many bad pivots are allowed before heap sort is used.
const MAX_INSERTION: usize = 12;
const SHORTEST_NINTHER: usize = 50;
const SHORTEST_SHIFTING: usize = 50;
const MAX_SWAPS: usize = 4 * 3;
const MAX_STEPS: usize = 5;

/// Sorts as `sort.Slice` of Go 1.19 and later does. `less` need not be a valid order: the result is then unspecified,
/// but memory accesses stay in bounds.
pub(crate) fn sort_slice<T>(data: &mut [T], less: impl Fn(&T, &T) -> bool) {
    let limit = bits(data.len());
    let len = data.len();
    Sorter { data, less }.sort(0, len, limit);
}

fn bits(n: usize) -> u32 {
    usize::BITS - n.leading_zeros()
}

/// What choosing a pivot shows about the slice.
#[derive(PartialEq)]
enum Hint {
    Unknown,
    Increasing,
    Decreasing,
}

struct Sorter<'a, T, F> {
    data: &'a mut [T],
    less: F,
}

impl<T, F: Fn(&T, &T) -> bool> Sorter<'_, T, F> {
    fn less(&self, i: usize, j: usize) -> bool {
        (self.less)(&self.data[i], &self.data[j])
    }

    fn swap(&mut self, i: usize, j: usize) {
        self.data.swap(i, j);
    }

    fn sort(&mut self, mut a: usize, mut b: usize, mut limit: u32) {
        let (mut was_balanced, mut was_partitioned) = (true, true);
        loop {
            let len = b - a;
            if len <= MAX_INSERTION {
                return self.insertion_sort(a, b);
            }
            if limit == 0 {
                return self.heap_sort(a, b);
            }
            if !was_balanced {
                self.break_patterns(a, b);
                limit -= 1;
            }
            let (mut pivot, mut hint) = self.choose_pivot(a, b);
            if hint == Hint::Decreasing {
                self.data[a..b].reverse();
                pivot = (b - 1) - (pivot - a);
                hint = Hint::Increasing;
            }
            if was_balanced && was_partitioned && hint == Hint::Increasing && self.partial_insertion_sort(a, b) {
                return;
            }
            if a > 0 && !self.less(a - 1, pivot) {
                a = self.partition_equal(a, b, pivot);
                continue;
            }
            let (mid, already) = self.partition(a, b, pivot);
            was_partitioned = already;
            let (left, right) = (mid - a, b - mid);
            if left < right {
                was_balanced = left >= len / 8;
                self.sort(a, mid, limit);
                a = mid + 1;
            } else {
                was_balanced = right >= len / 8;
                self.sort(mid + 1, b, limit);
                b = mid;
            }
        }
    }

    fn insertion_sort(&mut self, a: usize, b: usize) {
        for i in a + 1..b {
            let mut j = i;
            while j > a && self.less(j, j - 1) {
                self.swap(j, j - 1);
                j -= 1;
            }
        }
    }

    fn sift_down(&mut self, lo: usize, hi: usize, first: usize) {
        let mut root = lo;
        loop {
            let mut child = 2 * root + 1;
            if child >= hi {
                return;
            }
            if child + 1 < hi && self.less(first + child, first + child + 1) {
                child += 1;
            }
            if !self.less(first + root, first + child) {
                return;
            }
            self.swap(first + root, first + child);
            root = child;
        }
    }

    fn heap_sort(&mut self, a: usize, b: usize) {
        let hi = b - a;
        for i in (0..=(hi - 1) / 2).rev() {
            self.sift_down(i, hi, a);
        }
        for i in (0..hi).rev() {
            self.swap(a, a + i);
            self.sift_down(0, i, a);
        }
    }

    /// Moves elements less than the pivot before it. Returns the pivot's index, and whether nothing had to move.
    fn partition(&mut self, a: usize, b: usize, pivot: usize) -> (usize, bool) {
        self.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        let mut already = true;
        loop {
            while i <= j && self.less(i, a) {
                i += 1;
            }
            while i <= j && !self.less(j, a) {
                j -= 1;
            }
            if i > j {
                self.swap(j, a);
                return (j, already);
            }
            already = false;
            self.swap(i, j);
            i += 1;
            j -= 1;
        }
    }

    /// Moves elements equal to the pivot to the front, where no element is less. Returns the index of the first greater
    /// element.
    fn partition_equal(&mut self, a: usize, b: usize, pivot: usize) -> usize {
        self.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        loop {
            while i <= j && !self.less(a, i) {
                i += 1;
            }
            while i <= j && self.less(a, j) {
                j -= 1;
            }
            if i > j {
                return i;
            }
            self.swap(i, j);
            i += 1;
            j -= 1;
        }
    }

    /// Swaps a few pairs that are out of order. Returns whether the slice is then sorted.
    fn partial_insertion_sort(&mut self, a: usize, b: usize) -> bool {
        let mut i = a + 1;
        for _ in 0..MAX_STEPS {
            while i < b && !self.less(i, i - 1) {
                i += 1;
            }
            if i == b {
                return true;
            }
            if b - a < SHORTEST_SHIFTING {
                return false;
            }
            self.swap(i, i - 1);
            if i - a >= 2 {
                // Go also continues below `a` here.
                for j in (1..i).rev() {
                    if !self.less(j, j - 1) {
                        break;
                    }
                    self.swap(j, j - 1);
                }
            }
            if b - i >= 2 {
                for j in i + 1..b {
                    if !self.less(j, j - 1) {
                        break;
                    }
                    self.swap(j, j - 1);
                }
            }
        }
        false
    }

    /// Scatters some elements, the same ones for the same length.
    fn break_patterns(&mut self, a: usize, b: usize) {
        let len = b - a;
        if len < 8 {
            return;
        }
        let mut random = len as u64;
        let mask = (1_u64 << bits(len)) - 1;
        let middle = a + (len / 4) * 2;
        for at in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut other = (random & mask) as usize;
            if other >= len {
                other -= len;
            }
            self.swap(at, a + other);
        }
    }

    fn choose_pivot(&self, a: usize, b: usize) -> (usize, Hint) {
        let len = b - a;
        let mut swaps = 0;
        let (mut i, mut j, mut k) = (a + len / 4, a + len / 4 * 2, a + len / 4 * 3);
        if len >= 8 {
            if len >= SHORTEST_NINTHER {
                i = self.median(i - 1, i, i + 1, &mut swaps);
                j = self.median(j - 1, j, j + 1, &mut swaps);
                k = self.median(k - 1, k, k + 1, &mut swaps);
            }
            j = self.median(i, j, k, &mut swaps);
        }
        match swaps {
            0 => (j, Hint::Increasing),
            MAX_SWAPS => (j, Hint::Decreasing),
            _ => (j, Hint::Unknown),
        }
    }

    fn ordered(&self, a: usize, b: usize, swaps: &mut usize) -> (usize, usize) {
        if self.less(b, a) {
            *swaps += 1;
            return (b, a);
        }
        (a, b)
    }

    fn median(&self, a: usize, b: usize, c: usize, swaps: &mut usize) -> usize {
        let (a, b) = self.ordered(a, b, swaps);
        let (b, _) = self.ordered(b, c, swaps);
        self.ordered(a, b, swaps).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length, number of different keys, shape, and a hash of where Go 1.26's `sort.Slice` puts each element.
    const GO: &str = include_str!("go_sort.txt");

    fn keys(n: u64, k: u64, shape: u64) -> Vec<(u64, u64)> {
        let mut x = n * 1000 + k * 10 + shape;
        (0..n)
            .map(|i| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = match shape {
                    1 => i * k / n,
                    2 => (n - i) * k / n,
                    _ => (x >> 33) % k,
                };
                (key, i)
            })
            .collect()
    }

    #[test]
    fn same_order_as_go() {
        for line in GO.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [n, k, shape] = [0, 1, 2].map(|i| fields[i].parse::<u64>().expect("a number"));
            let mut data = keys(n, k, shape);
            // In the last shape, keys of zero are less than one another.
            sort_slice(&mut data, |a, b| a.0 < b.0 || (shape == 3 && a.0 == 0 && b.0 == 0));
            let hash =
                data.iter().fold(14_695_981_039_346_656_037_u64, |h, (_, at)| (h ^ at).wrapping_mul(1_099_511_628_211));
            assert_eq!(format!("{hash:016x}"), fields[3], "{line}");
        }
    }
}
