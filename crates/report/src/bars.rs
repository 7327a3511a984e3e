//! Amounts of one kind as horizontal bars from zero, readable at any width. Owns their look; must never compute a result.

use maud::{Markup, html};

use crate::chart::{colour, field};

/// Amounts of one kind below each other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bars {
    /// Short name: anchor and name of the CSV file.
    pub id: String,
    /// Title.
    pub title: String,
    /// What is seen, in a sentence or two.
    pub caption: String,
    /// In what the amounts are.
    pub unit: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// Whose amount it is.
    pub name: String,
    /// The amount; what is no number or below zero has no length.
    pub value: f64,
    /// The amount in words, and what else is to be said of it.
    pub words: String,
    /// Which colour, as in charts.
    pub colour: usize,
}

impl Bars {
    /// The data.
    #[must_use]
    pub fn csv(&self) -> String {
        let line = |bar: &Bar| format!("{},{}\n", field(&bar.name), bar.value);
        format!("name,{}\n", field(&self.unit)) + &self.bars.iter().map(line).collect::<String>()
    }

    pub(crate) fn markup(&self) -> Markup {
        let most = self.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
        let percent = |bar: &Bar| {
            let part = 100.0 * bar.value / most;
            if part.is_finite() { part.max(0.0) } else { 0.0 }
        };
        html! {
            .bars {
                @for bar in &self.bars {
                    .bar {
                        b { (bar.name) }
                        span.rail {
                            span style={ (format!("width:{:.2}%;background:{}", percent(bar), colour(bar.colour))) } {}
                        }
                        span { (bar.words) }
                    }
                }
            }
        }
    }
}
