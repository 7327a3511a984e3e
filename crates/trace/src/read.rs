//! One recording, record by record. Owns the count of losses and what times look odd; must never put anything in order.

use crate::activity::LONGEST;
use crate::bytes::Bytes;
use crate::decode::{Damage, Decoder, Format, Next};
use crate::input::Input;
use crate::loss::{Loss, Losses};
use crate::table_file::ActivityReader;

/// A day, in nanoseconds.
const DAY: u64 = 86_400 * 1_000_000_000;

/// A recording being read, record by record, not yet in order.
pub struct Reader {
    name: String,
    bytes: Bytes,
    decoder: Decoder,
    format: Format,
    losses: Losses,
    upkeep: u64,
    records: u64,
    done: bool,
}

impl Reader {
    /// Opens an input and recognises its format.
    ///
    /// # Errors
    /// A [`Loss`] at offset 0 if it cannot be opened or is in no known format.
    pub fn open(input: &Input, format: Option<Format>) -> Result<Self, Loss> {
        let lost = |reason: String| Loss { file: input.name().to_owned(), offset: 0, record: 0, reason };
        let mut bytes = input.open().map_err(|e| lost(e.to_string()))?;
        let format = match format {
            Some(format) => format,
            None => match Format::detect(bytes.peek(1 << 16)) {
                Ok(format) => format,
                Err(found) => {
                    let found = bytes.take_error().map_or(found, |e| e.to_string());
                    return Err(lost(format!("not a known format: {found}")));
                }
            },
        };
        let decoder = if matches!(format, Format::Parquet | Format::Arrow) {
            let file = input.file_handle().map_err(|e| lost(e.to_string()))?;
            Decoder::Table(Box::new(ActivityReader::open(file).map_err(lost)?))
        } else {
            Decoder::open(format, &mut bytes, input.export_ports()).map_err(lost)?
        };
        let name = input.name().to_owned();
        Ok(Self {
            name,
            bytes,
            decoder,
            format,
            losses: Losses::default(),
            upkeep: 0,
            records: 0,
            done: false,
        })
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The decoder, for what only it knows.
    #[must_use]
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// What was lost so far.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// 802.11 frames without traffic so far.
    #[must_use]
    pub const fn upkeep(&self) -> u64 {
        self.upkeep
    }

    /// Bytes read so far, decompressed.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    /// The next packet or flow; `None` at the end.
    #[inline(always)]
    pub fn record(&mut self) -> Option<Next> {
        loop {
            match self.decoder.next(&mut self.bytes) {
                next @ (Next::Packet(_) | Next::Burst(_)) => {
                    self.records += 1;
                    return Some(next);
                }
                Next::Flow(flow) => {
                    self.records += 1;
                    let lasts = flow.end.saturating_sub(flow.first.at);
                    if lasts <= LONGEST {
                        return Some(Next::Flow(flow));
                    }
                    let reason =
                        format!("a flow of {} days, at most {} are believed", lasts / DAY, LONGEST / DAY);
                    self.unusual(Next::Damaged(Damage::one(self.records, 0, reason)));
                }
                Next::Upkeep => self.upkeep += 1,
                next @ Next::Joins(_) => {
                    self.upkeep += 1;
                    return Some(next);
                }
                other => {
                    if !self.unusual(other) {
                        return None;
                    }
                }
            }
        }
    }

    /// Damage and the end; whether reading goes on.
    #[cold]
    fn unusual(&mut self, next: Next) -> bool {
        if self.done {
            return false;
        }
        let mut goes_on = false;
        if let Next::Damaged(damage) = next {
            let offset = self.bytes.offset().saturating_sub(damage.behind as u64);
            goes_on = !damage.rest;
            let mut reason = damage.reason;
            if damage.rest {
                let rest = self.bytes.drain();
                reason = format!("{reason}; the remaining {rest} bytes are lost");
            }
            self.losses.push(Loss { file: self.name.clone(), offset, record: damage.record, reason });
        }
        if !goes_on {
            self.done = true;
            if let Some(error) = self.bytes.take_error() {
                let (file, offset) = (self.name.clone(), self.bytes.offset());
                self.losses.push(Loss {
                    file,
                    offset,
                    record: 0,
                    reason: format!("the input ends early: {error}"),
                });
            }
        }
        goes_on
    }
}
