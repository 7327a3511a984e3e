//! Charts as inline SVG, each with its data as CSV. Owns the look; must never compute a result.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Serialize;

/// Size of every chart without its legend, in SVG units.
const SIZE: (u32, u32) = (860, 380);
/// Heights of letters, on the axes and in the legend, as the plotting library counts: it draws them a fifth smaller.
const LETTERS: (i32, i32) = (16, 15);
/// A line of the legend, a letter in it at most, and what stands before and behind a name.
const LEGEND: (i32, i32, i32, i32) = (22, 8, 34, 24);
/// Distinguishable also for the colour-blind (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];
const GRID: RGBColor = RGBColor(228, 230, 235);
const INK: RGBColor = RGBColor(60, 64, 72);

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A line.
    Line,
    /// A dashed line.
    Dashes,
    /// A line from the bottom to each point.
    Stems,
    /// Adjacent bars, each from its x to the next.
    Steps,
    /// A dot at each point.
    Points,
    /// A line between every two points, which are the ends of an interval. Not in the legend: the series of its colour is.
    Intervals,
}

/// A series.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// Its name in the legend and the CSV.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    #[serde(skip)]
    pub mark: Mark,
    /// Which colour; series of one colour belong together.
    #[serde(skip)]
    pub colour: usize,
}

/// A chart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Chart {
    /// Short name: anchor and name of the CSV file.
    pub id: String,
    /// Title.
    pub title: String,
    /// What is seen, in a sentence or two.
    pub caption: String,
    /// Label of the x axis.
    pub x: String,
    /// Label of the y axis.
    pub y: String,
    /// Range of x; derived from the data if `None`.
    #[serde(skip)]
    pub x_range: Option<(f64, f64)>,
    /// Range of y; derived from the data if `None`.
    #[serde(skip)]
    pub y_range: Option<(f64, f64)>,
    /// Whether x is logarithmic.
    #[serde(skip)]
    pub x_log: bool,
    /// Whether y is logarithmic.
    #[serde(skip)]
    pub y_log: bool,
    /// The series.
    pub series: Vec<Series>,
    /// Names for the integers 0, 1, … of the x axis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
}

impl Chart {
    /// An empty chart with linear axes.
    #[must_use]
    pub fn new(id: &str, title: &str, x: &str, y: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: String::new(),
            x: x.to_owned(),
            y: y.to_owned(),
            x_range: None,
            y_range: None,
            x_log: false,
            y_log: false,
            series: Vec::new(),
            categories: Vec::new(),
        }
    }

    /// Adds a series.
    pub fn add(&mut self, name: &str, colour: usize, mark: Mark, points: Vec<(f64, f64)>) {
        self.series.push(Series { name: name.to_owned(), points, mark, colour });
    }

    /// Adds estimates, `[value, low, high]` at each x: a dot, and a line between the ends of its interval. Nothing if there are none.
    pub fn estimates(&mut self, name: &str, colour: usize, points: &[(f64, [f64; 3])]) {
        if points.is_empty() {
            return;
        }
        self.add(name, colour, Mark::Points, points.iter().map(|(x, [value, ..])| (*x, *value)).collect());
        let ends = points.iter().flat_map(|(x, [_, low, high])| [(*x, *low), (*x, *high)]);
        self.add(&format!("{name}, interval"), colour, Mark::Intervals, ends.collect());
    }

    /// Gives each category a name, and the same room on both sides of it: see [`beside`].
    pub fn side_by_side(&mut self, categories: impl IntoIterator<Item: Into<String>>) {
        self.categories = categories.into_iter().map(Into::into).collect();
        self.x_range = Some((-0.5, self.categories.len() as f64 - 0.5));
    }

    /// Whether there is anything to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|s| s.points.is_empty())
    }

    /// The data: `series,x,y`. What stands beside the middle of a category is of that category.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = format!("series,{},{}\n", field(&self.x), field(&self.y));
        for series in &self.series {
            for (x, y) in &series.points {
                let name = self.categories.get(x.round() as usize).filter(|_| x.round() >= 0.0);
                let x = name.map_or_else(|| x.to_string(), |n| field(n));
                out.push_str(&format!("{},{x},{y}\n", field(&series.name)));
            }
        }
        out
    }

    /// The chart as an SVG element.
    ///
    /// # Errors
    /// What the plotting library says, which would be a defect here.
    pub fn svg(&self) -> Result<String, String> {
        let mut out = String::new();
        self.draw(&mut out).map_err(|e| format!("{}: {e}", self.id))?;
        // One page holds many charts: scale to the column instead of a fixed size.
        let (w, h) = self.size();
        Ok(out
            .replacen(&format!("width=\"{w}\" height=\"{h}\""), "width=\"100%\" role=\"img\"", 1)
            .trim()
            .to_owned())
    }

    /// With the legend.
    fn size(&self) -> (u32, u32) {
        let lines = self.legend_places().last().map_or(0, |(_, y)| y / LEGEND.0 + 1);
        (SIZE.0, SIZE.1 + u32::try_from(lines * LEGEND.0).unwrap_or(0))
    }

    /// The series that the legend names.
    fn named(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| series.mark != Mark::Intervals)
    }

    /// Where each of them stands in the legend; nowhere if there is but one.
    fn legend_places(&self) -> Vec<(i32, i32)> {
        let (line, letter, before, behind) = LEGEND;
        let right = SIZE.0.cast_signed();
        let (mut x, mut y) = (before, 0);
        let mut places = Vec::new();
        for series in self.named().filter(|_| self.named().count() > 1) {
            let width = before + behind + letter * i32::try_from(series.name.chars().count()).unwrap_or(0);
            if x > before && x + width > right {
                (x, y) = (before, y + line);
            }
            places.push((x, y));
            x += width;
        }
        places
    }

    fn range(&self, given: Option<(f64, f64)>, log: bool, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = || {
            self.series
                .iter()
                .flat_map(|s| s.points.iter().map(&of))
                .filter(|v| v.is_finite() && (!log || *v > 0.0))
        };
        let (low, high) = given.unwrap_or_else(|| {
            let (low, high) =
                (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
            if log { (low / 1.2, high * 1.2) } else { (low.min(0.0), high + (high - low.min(0.0)) * 0.05) }
        });
        if low.is_finite() && high > low {
            (low, high)
        } else if log {
            (0.1, 10.0)
        } else {
            (0.0, 1.0)
        }
    }

    fn draw(&self, out: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::with_string(out, self.size()).into_drawing_area();
        let (plot, legend) = root.split_vertically(SIZE.1);
        // Logarithmic axes are drawn as linear ones over the logarithm, with labels at the powers of ten.
        let (x, y) =
            (self.range(self.x_range, self.x_log, |p| p.0), self.range(self.y_range, self.y_log, |p| p.1));
        let scale =
            |(low, high): (f64, f64), log: bool| if log { (low.log10(), high.log10()) } else { (low, high) };
        let ((x0, x1), (y0, y1)) = (scale(x, self.x_log), scale(y, self.y_log));
        let mut chart = ChartBuilder::on(&plot)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(x0..x1, y0..y1)?;
        let tick = |v: &f64, log: bool| if log { plain(10f64.powf(*v)) } else { plain(*v) };
        let x_tick = |v: &f64| {
            let at = v.round().max(0.0) as usize;
            if self.categories.is_empty() {
                tick(v, self.x_log)
            } else if (v - v.round()).abs() < 0.01 && *v > -0.5 {
                self.categories.get(at).cloned().unwrap_or_default()
            } else {
                String::new()
            }
        };
        let text = ("sans-serif", LETTERS.0).into_font().color(&INK);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK.mix(0.6))
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .x_labels(if self.categories.is_empty() { 10 } else { self.categories.len() * 2 + 1 })
            .y_labels(8)
            .x_label_formatter(&x_tick)
            .y_label_formatter(&|v| tick(v, self.y_log))
            .draw()?;
        for series in &self.series {
            let colour = COLOURS[series.colour % COLOURS.len()];
            let place = |p: &(f64, f64)| {
                (if self.x_log { p.0.log10() } else { p.0 }, if self.y_log { p.1.log10() } else { p.1 })
            };
            let points = series.points.iter().map(place).filter(|p| p.0.is_finite() && p.1.is_finite());
            match series.mark {
                Mark::Line => {
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                }
                Mark::Dashes => {
                    chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2)))?;
                }
                Mark::Stems => {
                    let stems = points.map(|(x, y)| {
                        PathElement::new(vec![(x, y0), (x, y)], colour.mix(0.75).stroke_width(1))
                    });
                    chart.draw_series(stems)?;
                }
                Mark::Points => {
                    chart.draw_series(points.map(|p| Circle::new(p, 4, colour.mix(0.6).filled())))?;
                }
                Mark::Intervals => {
                    // What a logarithmic axis cannot show begins at its lower end.
                    let (half, line) = ((x1 - x0) / 250.0, colour.stroke_width(2));
                    let ends = series.points.chunks_exact(2).filter_map(|ends| match ends {
                        [low, high] => Some((place(low), place(high))),
                        _ => None,
                    });
                    let lines =
                        ends.filter(|(_, high)| high.1.is_finite()).flat_map(|((x, low), (_, high))| {
                            let across = |y| vec![(x - half, y), (x + half, y)];
                            let low = low.max(y0);
                            [vec![(x, low), (x, high)], across(low), across(high)]
                        });
                    chart.draw_series(lines.map(|line_of| PathElement::new(line_of, line)))?;
                }
                Mark::Steps => {
                    let points: Vec<(f64, f64)> = points.collect();
                    let bars = points.windows(2).filter_map(|w| match w {
                        [a, b] => Some(Rectangle::new([(a.0, y0), (b.0, a.1)], colour.mix(0.7).filled())),
                        _ => None,
                    });
                    chart.draw_series(bars)?;
                }
            }
        }
        self.legend(&legend)?;
        root.present()?;
        Ok(())
    }

    fn legend<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let text = ("sans-serif", LETTERS.1).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        for (series, (x, y)) in self.named().zip(self.legend_places()) {
            let colour = COLOURS[series.colour % COLOURS.len()];
            let y = y + LEGEND.0 / 2;
            let pieces: &[(i32, i32)] =
                if series.mark == Mark::Dashes { &[(0, 8), (14, 22)] } else { &[(0, 22)] };
            for (from, to) in pieces {
                area.draw(&PathElement::new(vec![(x + *from, y), (x + *to, y)], colour.stroke_width(3)))?;
            }
            area.draw(&Text::new(series.name.clone(), (x + 30, y), text.clone()))?;
        }
        Ok(())
    }
}

/// The x of the `n`-th of so many marks of a category, which stand side by side so that none hides another.
#[must_use]
pub fn beside(category: usize, n: usize, of: usize) -> f64 {
    category as f64 + (n as f64 - (of as f64 - 1.0) / 2.0) * 0.12
}

/// A colour of series, as CSS has it.
pub(crate) fn colour(n: usize) -> String {
    let RGBColor(r, g, b) = COLOURS[n % COLOURS.len()];
    format!("rgb({r},{g},{b})")
}

/// A number as short as it can be.
pub(crate) fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        v if v >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A CSV field.
pub(crate) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The cumulative distribution of `values` as at most 200 points: (value, part of the values that are at most it, in percent).
#[must_use]
pub fn cdf(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let part = |n: usize| 100.0 * n as f64 / values.len() as f64;
    let step = values.len().div_ceil(200).max(1);
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (n, value) in values.iter().enumerate() {
        if n % step == step - 1 || n + 1 == values.len() {
            let from = points.last().map_or(0.0, |p| p.1);
            points.push((*value, from));
            points.push((*value, part(n + 1)));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_dots_with_lines_between_the_ends_of_their_intervals() {
        let mut chart = Chart::new("id", "title", "", "ms");
        chart.side_by_side(["first", "second"]);
        (chart.y_log, chart.y_range) = (true, Some((0.5, 50.0)));
        chart.estimates("nothing", 2, &[]);
        chart.add("paper", 1, Mark::Points, vec![(beside(1, 0, 2), 26.0)]);
        chart.estimates("ours", 0, &[(beside(0, 1, 2), [2.0, 1.0, 4.0]), (beside(1, 1, 2), [3.0, 0.0, 5.0])]);
        assert_eq!(
            chart.csv(),
            "series,,ms\npaper,second,26\nours,first,2\nours,second,3\n\
             \"ours, interval\",first,1\n\"ours, interval\",first,4\n\"ours, interval\",second,0\n\"ours, interval\",second,5\n"
        );
        let svg = chart.svg().unwrap();
        assert!(svg.contains("ours") && !svg.contains("interval") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        // The interval from 0 is drawn from the lower end of the axis.
        let drawn = |chart: &Chart| chart.svg().unwrap().matches("<polyline").count();
        let with = drawn(&chart);
        chart.series.retain(|series| series.mark != Mark::Intervals);
        assert_eq!(with - drawn(&chart), 6);
    }

    #[test]
    fn marks_of_a_category_stand_around_its_middle() {
        assert_eq!([0, 1, 2].map(|n| (beside(4, n, 3) * 100.0).round()), [388.0, 400.0, 412.0]);
    }
}
