//! Results as people and programs read them: a table, JSON, one HTML page.

pub mod chart;
pub mod charts;
pub mod figures;
pub mod html;
pub mod json;
pub mod table;
