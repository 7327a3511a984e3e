//! Documents of cards, tables, charts and text, written once and shown as text on a terminal or as one self-contained HTML page; tables
//! and charts also as JSON, without their look. Owns that look, how numbers are written, and that a file is there whole or not at all; must
//! never compute a result, nor let a page reach for anything outside of itself.

mod bars;
pub mod chart;
mod html;
mod text;
mod tracks;
mod whole;
mod words;

pub use bars::{Bar, Bars};
pub use chart::{Chart, Mark};
pub use tracks::{Subject, Track, Tracks};
pub use whole::{Unfinished, write_whole};
pub use words::{digits, duration, percent, thousands};

use serde::Serialize;

/// A document.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// What it is about, in a sentence or two.
    pub lead: String,
    /// Whether any of the traffic is synthetic, which is said before anything else.
    pub synthetic: bool,
    /// What stands in it.
    pub blocks: Vec<Block>,
    /// The last line of a page: where it comes from.
    pub about: String,
}

/// A block of a document.
#[derive(Clone, PartialEq, Debug)]
pub enum Block {
    /// What is to be seen first: values with their labels.
    Cards(Vec<(String, String)>),
    /// A section.
    Section(Section),
    /// A chart with its caption and its data.
    Chart(Chart),
    /// The same of a few amounts.
    Bars(Bars),
    /// The same of what happened, over one axis.
    Tracks(Tracks),
}

/// A section.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    /// Its anchor; empty for none.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What stands in it.
    pub parts: Vec<Part>,
}

/// A part of a section.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// A paragraph.
    Text(String),
    /// A list.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// What words mean.
    Terms(Vec<(String, String)>),
    /// Lines as they are: a configuration, for example.
    Code(String),
    /// Files beside the page: what they are about, and each one's name and place relative to the page.
    Files(String, Vec<(String, String)>),
}

/// A table.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows; empty where its section says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Heads of the columns.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
    /// Whether its cells are words, which begin at the left and may be broken, and not numbers.
    #[serde(skip)]
    pub words: bool,
    /// Whether the last row is the sum of the others.
    #[serde(skip)]
    pub total: bool,
}

impl Table {
    /// Of numbers, under these heads.
    #[must_use]
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Of words, under these heads.
    #[must_use]
    pub fn words<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self { words: true, ..Self::new(head) }
    }

    /// Of words, with a title and rows.
    #[must_use]
    pub fn titled<T: Into<String>>(
        title: impl Into<String>,
        head: impl IntoIterator<Item = T>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        Self { title: title.into(), rows: rows.into_iter().collect(), ..Self::words(head) }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// As CSV, with its heads.
    #[must_use]
    pub fn csv(&self) -> String {
        let line =
            |cells: &Vec<String>| cells.iter().map(|c| chart::field(c)).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.head).chain(&self.rows).map(line).collect()
    }

    /// As text, each line behind `indent`, its columns as wide as they must be.
    #[must_use]
    pub fn text(&self, indent: &str) -> String {
        text::table(self, indent)
    }

    /// In columns however wide they are, the line of the heads as `head` makes it: coloured, for example.
    #[must_use]
    pub fn columns(&self, indent: &str, head: impl Fn(&str) -> String) -> String {
        text::columns(self, indent, head)
    }
}

impl Document {
    /// Adds a section; one without parts is left out.
    pub fn section(&mut self, id: &str, title: &str, parts: impl IntoIterator<Item = Part>) {
        let section =
            Section { id: id.to_owned(), title: title.to_owned(), parts: parts.into_iter().collect() };
        if !section.parts.is_empty() {
            self.blocks.push(Block::Section(section));
        }
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text::document(self)
    }

    /// As a page.
    ///
    /// # Errors
    /// When a chart cannot be drawn, which would be a defect.
    pub fn html(&self) -> Result<String, String> {
        html::page(self)
    }
}
