//! The time axis of a timeline: seconds and days on one page.
//!
//! Between two moments at which something happens there is space for the logarithm of the time that passes, so an hour of
//! silence is not much wider than a minute.

use jiff::{SignedDuration, Timestamp};

/// The time axis.
pub(super) struct Axis {
    /// Moments and their place, in order.
    stops: Vec<(Timestamp, f64)>,
}

/// The least space of a chapter.
const CHAPTER: f64 = 30.0;

impl Axis {
    /// An axis of this width, or wider if its chapters need more: each has at least the space of its number.
    pub(super) fn new(mut moments: Vec<Timestamp>, chapters: &[Timestamp], width: f64) -> Axis {
        moments.extend(chapters);
        moments.sort();
        moments.dedup();
        // The more space a second has, the wider the axis is: the scale is found by halving.
        let (mut low, mut high) = (0.0, width);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if Axis::scaled(&moments, chapters, middle).width() > width {
                high = middle;
            } else {
                low = middle;
            }
        }
        Axis::scaled(&moments, chapters, low.max(1.0))
    }

    fn scaled(moments: &[Timestamp], chapters: &[Timestamp], scale: f64) -> Axis {
        let weight = |gap: SignedDuration| (1.0 + gap.as_secs_f64()).ln();
        let mut stops: Vec<(Timestamp, f64)> = Vec::new();
        let mut chapter_began = 0.0;
        for (i, at) in moments.iter().enumerate() {
            let mut place = match stops.last() {
                Some((before, place)) => place + scale * weight(at.duration_since(*before)),
                None => 0.0,
            };
            if chapters.contains(at) {
                place = if i > 0 { place.max(chapter_began + CHAPTER) } else { place };
                chapter_began = place;
            }
            stops.push((*at, place));
        }
        Axis { stops }
    }

    /// The width of the axis.
    pub(super) fn width(&self) -> f64 {
        self.stops.last().map_or(0.0, |(_, place)| *place)
    }

    /// The place of a moment.
    pub(super) fn place(&self, at: Timestamp) -> f64 {
        let after = self.stops.partition_point(|(stop, _)| *stop <= at);
        let Some((before, place)) = after.checked_sub(1).and_then(|i| self.stops.get(i)) else { return 0.0 };
        let Some((next, next_place)) = self.stops.get(after) else { return *place };
        let part = at.duration_since(*before).as_secs_f64() / next.duration_since(*before).as_secs_f64().max(1e-9);
        place + (next_place - place) * part
    }

    /// The long times in which nothing happens: from and to which place, and how long.
    pub(super) fn silences(&self) -> impl Iterator<Item = (f64, f64, SignedDuration)> {
        let gaps = self.stops.windows(2).map(|pair| (pair[0].1, pair[1].1, pair[1].0.duration_since(pair[0].0)));
        gaps.filter(|(_, _, gap)| *gap >= SignedDuration::from_mins(20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_in_order_and_chapters_have_space() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let axis = Axis::new(vec![at(0), at(1), at(60), at(240_000)], &[at(0), at(1), at(60)], 300.0);
        let places: Vec<f64> = [0, 1, 30, 60, 100_000, 240_000].map(|second| axis.place(at(second))).to_vec();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        assert!(axis.place(at(1)) >= CHAPTER && axis.place(at(60)) - axis.place(at(1)) >= CHAPTER, "{places:?}");
        assert_eq!(axis.silences().count(), 1);
    }
}
