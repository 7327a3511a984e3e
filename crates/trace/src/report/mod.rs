//! What an analysis says: JSON, a document, charts. Owns the words and the look of reports; must never compute a result.

pub mod charts;
pub mod figures;
pub mod json;
pub mod page;
