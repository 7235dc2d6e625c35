//! The last day: what clients did and how full the cluster was, in memory of a fixed size, and its charts.

use std::collections::VecDeque;

use maud::{Markup, html};

use crate::state::State;

/// Seconds between two points.
const STEP_S: u64 = 60;
/// Points: a day.
const POINTS_MAX: usize = 1_440;
/// Size of a chart, in units of its own.
const WIDTH: f64 = 720.0;
/// Its height.
const HEIGHT: f64 = 120.0;

/// What is kept of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Seconds since 1970.
    pub at_s: u64,
    /// Bytes each second that clients read, and write.
    pub bytes: (f64, f64),
    /// Reads and writes each second.
    pub ops: (f64, f64),
    /// Bytes each second that recovery moves.
    pub recovered: f64,
    /// Which part of all space is used, 0 to 1.
    pub fill: f64,
}

/// A line of a chart: the class of its colour, its name, its value of a point.
pub type Line<'a> = (&'a str, &'a str, fn(&Point) -> f64);

/// The last day.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<Point>);

impl History {
    /// Keeps what is now, once in a minute.
    pub fn take(&mut self, state: &State) {
        if self.0.back().is_some_and(|last| state.at_s < last.at_s + STEP_S) {
            return;
        }
        let (rates, space) = (&state.rates, &state.capacity);
        if self.0.len() >= POINTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Point {
            at_s: state.at_s,
            bytes: (rates.read, rates.written),
            ops: (rates.reads, rates.writes),
            recovered: rates.recovered,
            fill: crate::state::part(space.used, space.total),
        });
    }

    /// How many points there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was kept yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A chart of lines; each has a class for its colour, a name, and its value of a point. `most` is the value
    /// at the top; `None`: the greatest there is.
    #[must_use]
    pub fn chart(
        &self,
        title: &str,
        lines: &[Line<'_>],
        most: Option<f64>,
        show: fn(f64) -> String,
    ) -> Markup {
        let all = || lines.iter().flat_map(|(_, _, of)| self.0.iter().map(of));
        let top = most.unwrap_or_else(|| all().fold(0.0, f64::max)).max(1e-9);
        let end = self.0.back().map_or(0, |point| point.at_s);
        let span = (POINTS_MAX as u64 * STEP_S) as f64;
        let path = |of: fn(&Point) -> f64| {
            let mut path = String::new();
            let mut before: Option<u64> = None;
            for point in &self.0 {
                let x = WIDTH - (end - point.at_s) as f64 / span * WIDTH;
                let y = HEIGHT - (of(point) / top).clamp(0.0, 1.0) * HEIGHT;
                // Nothing is drawn over a time that nobody looked.
                let is_apart = before.is_none_or(|at| point.at_s > at + 5 * STEP_S);
                path += &format!("{}{x:.0} {y:.0}", if is_apart { 'M' } else { 'L' });
                before = Some(point.at_s);
            }
            path
        };
        html! {
            figure {
                figcaption {
                    (title)
                    @for (class, name, of) in lines {
                        " " span class={"key " (class)} { (name) ": " (show(self.0.back().map_or(0.0, of))) }
                    }
                    @if most.is_none() { " top: " (show(all().fold(0.0, f64::max))) }
                }
                svg viewBox={"0 0 " (WIDTH) " " (HEIGHT)} role="img" aria-label=(title) preserveAspectRatio="none" {
                    @for quarter in 1..4 {
                        @let y = HEIGHT * f64::from(quarter) / 4.0;
                        line class="grid" x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                    }
                    @for (class, _, of) in lines { path class=(class) d=(path(*of)) fill="none" {} }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Capacity, Rates};

    fn at(at_s: u64, written: f64) -> State {
        State {
            at_s,
            rates: Rates { written, ..Rates::default() },
            capacity: Capacity { total: 100, used: 40, nearfull: 0.85 },
            ..State::default()
        }
    }

    #[test]
    fn a_day_is_kept() {
        let mut history = History::default();
        for second in (0..3 * 86_400).step_by(15) {
            history.take(&at(second, 1.0));
        }
        assert_eq!(history.len(), POINTS_MAX);
        assert!((history.0[0].fill - 0.4).abs() < 1e-9);
        assert_eq!(history.0[1].at_s - history.0[0].at_s, STEP_S);
    }

    /// The chart of a whole day is small, and a gap is not drawn over.
    #[test]
    fn charts() {
        let mut history = History::default();
        for minute in 0..POINTS_MAX as u64 {
            history.take(&at(minute * STEP_S, minute as f64));
        }
        let chart = |history: &History| {
            let show = |value: f64| format!("{value:.0} B");
            history.chart("I/O", &[("w", "written", |p| p.bytes.1)], None, show).into_string()
        };
        let text = chart(&history);
        assert!(text.len() < 20_000, "{} bytes", text.len());
        assert!(text.contains("top: 1439 B") && text.matches('M').count() == 1, "{text}");
        history.take(&at(POINTS_MAX as u64 * STEP_S + 3_600, 1.0));
        assert_eq!(chart(&history).matches('M').count(), 2);
        assert!(chart(&History::default()).contains("d=\"\""), "nothing yet");
    }
}
