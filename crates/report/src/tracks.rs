//! What happened to several subjects, as tracks below each other over one axis. Owns their look; must never compute a result.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::chart::{colour, field, plain};

/// Tracks over one axis.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tracks {
    /// Short name: anchor and name of the CSV file.
    pub id: String,
    /// Title.
    pub title: String,
    /// What is seen, in a sentence or two.
    pub caption: String,
    /// What the axis counts.
    pub axis: String,
    /// Its ends.
    pub range: (f64, f64),
    /// Whose tracks they are, from top to bottom.
    pub subjects: Vec<Subject>,
}

/// Of whom the tracks tell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its tracks.
    pub tracks: Vec<Track>,
}

/// A track.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Track {
    /// What it shows.
    pub name: String,
    /// Where something was, from and until; what has no extent is a stroke.
    pub spans: Vec<(f64, f64)>,
    /// Which colour, as in charts.
    pub colour: usize,
}

/// Extent of a track's drawing, which is stretched to its place.
const WIDTH: f64 = 1_000.0;
const HEIGHT: u32 = 20;
/// At most so many marks on the axis: more do not fit below a track on a phone.
const MARKS: f64 = 7.0;

impl Tracks {
    /// The data.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = "of,track,from,until\n".to_owned();
        for subject in &self.subjects {
            for track in &subject.tracks {
                for (from, until) in &track.spans {
                    let _ = writeln!(out, "{},{},{from},{until}", field(&subject.name), field(&track.name));
                }
            }
        }
        out
    }

    /// Where on the axis a value lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let part = (value - low) / (high - low);
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Round values between the ends of the axis.
    fn marks(&self) -> Vec<f64> {
        let (low, high) = self.range;
        let least = (high - low) / (MARKS - 1.0);
        if !(least.is_finite() && least > 0.0) {
            return Vec::new();
        }
        let power = 10f64.powf(least.log10().floor());
        // The last bears rounding: it is never too small.
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= least * 0.999);
        let step = step.unwrap_or(10.0 * power);
        let first = (low / step).ceil();
        (0..MARKS as u32).map(|n| (first + f64::from(n)) * step).take_while(|v| *v <= high).collect()
    }

    pub(crate) fn markup(&self) -> Markup {
        let marks = self.marks();
        let grid: String =
            marks.iter().map(|v| format!("M{:.2} 0V{HEIGHT}", WIDTH * self.place(*v))).collect();
        html! {
            .tracks {
                @for subject in &self.subjects {
                    h3 { (subject.name) }
                    @for track in &subject.tracks {
                        .track {
                            span { (track.name) }
                            (self.drawn(subject, track, &grid))
                        }
                    }
                }
                .track {
                    span { (self.axis) }
                    .ticks {
                        @for mark in &marks {
                            span style={ (format!("left:{:.2}%", 100.0 * self.place(*mark))) } { (plain(*mark)) }
                        }
                    }
                }
            }
        }
    }

    fn drawn(&self, subject: &Subject, track: &Track, grid: &str) -> Markup {
        let (mut strokes, mut areas) = (String::new(), String::new());
        for (from, until) in &track.spans {
            let [a, b] = [from, until].map(|v| WIDTH * self.place(*v));
            let _ = match b > a {
                true => write!(areas, "M{a:.2} 0H{b:.2}V{HEIGHT}H{a:.2}Z"),
                false => write!(strokes, "M{a:.2} 0V{HEIGHT}"),
            };
        }
        let colour = colour(track.colour);
        html! {
            svg role="img" aria-label={ (subject.name) ": " (track.name) } viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
                preserveAspectRatio="none" {
                path d=(grid) stroke="#d5d9e0" vector-effect="non-scaling-stroke" {}
                path d=(areas) fill=(colour) {}
                path d=(strokes) stroke=(colour) stroke-width="1.5" vector-effect="non-scaling-stroke" {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(low: f64, high: f64) -> Tracks {
        Tracks { range: (low, high), ..Tracks::default() }
    }

    #[test]
    fn an_axis_has_few_round_marks_within_its_ends() {
        assert_eq!(over(0.0, 60.0).marks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(over(7.0, 43.0).marks(), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(over(0.0, 0.7).marks().len(), 4);
        for nonsense in [over(1.0, 1.0), over(1.0, 0.0), over(0.0, f64::NAN), over(0.0, f64::INFINITY)] {
            assert_eq!(nonsense.marks(), Vec::<f64>::new());
        }
    }

    #[test]
    fn what_has_no_extent_is_a_stroke_and_nothing_leaves_the_axis() {
        let mut tracks = over(0.0, 10.0);
        let track = Track { name: "on".into(), spans: vec![(0.0, 5.0), (7.0, 7.0), (9.0, 99.0)], colour: 0 };
        tracks.subjects.push(Subject { name: "a".into(), tracks: vec![track] });
        let drawn = tracks.markup().into_string();
        assert!(drawn.contains("M0.00 0H500.00V20H0.00ZM900.00 0H1000.00V20H900.00Z"), "{drawn}");
        assert!(drawn.contains("\"M700.00 0V20\""), "{drawn}");
        assert_eq!(tracks.csv().lines().nth(2), Some("a,on,7,7"));
    }
}
