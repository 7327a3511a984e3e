//! Results as people and programs read them: a table, JSON, one HTML page.

pub mod json;
pub mod table;
