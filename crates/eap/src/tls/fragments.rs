//! Flights of TLS in fragments (RFC 5216 sections 2.1.5 and 3). Owns the flags and the bounds; must never keep more than one flight in each direction.

use core::mem;

use crate::error::Error;
use crate::limits::{MAX_FLIGHT, TLS_FRAGMENT};

/// The length of the whole flight comes first.
const LENGTH: u8 = 0x80;
/// More fragments follow.
const MORE: u8 = 0x40;
/// A server's first request.
pub(crate) const START: u8 = 0x20;

/// What a packet was.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// A fragment with more to come: to be acknowledged.
    Partial,
    /// An acknowledgement: the next fragment is due.
    Next,
    /// The last fragment, and so the whole flight; nothing if the packet only gives the turn back.
    Flight(Vec<u8>),
}

/// A packet that says nothing: an acknowledgement.
pub(crate) fn nothing() -> Vec<u8> {
    vec![0]
}

/// What is under way in both directions.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    incoming: Vec<u8>,
    /// Of the flight that is coming in.
    announced: Option<usize>,
    outgoing: Vec<u8>,
    /// Of `outgoing`.
    sent: usize,
}

impl Fragments {
    /// Takes the data of a packet.
    pub(crate) fn take(&mut self, data: &[u8]) -> Result<Arrived, Error> {
        // Some leave the flags of an acknowledgement out: "and no data" (RFC 5216 section 2.1.5).
        let (flags, mut body) = data.split_first().map_or((0, data), |(flags, body)| (*flags, body));
        if flags & LENGTH != 0 {
            let (length, rest) =
                body.split_first_chunk().ok_or(Error::Malformed("a length that is cut short"))?;
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > MAX_FLIGHT {
                return Err(Error::TooLong("a flight of TLS"));
            }
            if *self.announced.get_or_insert(length) != length {
                return Err(Error::Malformed("two lengths of one flight of TLS"));
            }
            body = rest;
        }
        if self.is_sending() {
            let acknowledges = body.is_empty() && flags & MORE == 0;
            self.announced = None;
            return if acknowledges { Ok(Arrived::Next) } else { Err(Error::Unexpected("TLS out of turn")) };
        }
        if self.incoming.len() + body.len() > self.announced.unwrap_or(MAX_FLIGHT) {
            return Err(Error::TooLong("a flight of TLS"));
        }
        self.incoming.extend_from_slice(body);
        if flags & MORE != 0 {
            return Ok(Arrived::Partial);
        }
        if self.announced.take().is_some_and(|length| length != self.incoming.len()) {
            return Err(Error::Malformed("a flight of TLS that is shorter than announced"));
        }
        Ok(Arrived::Flight(mem::take(&mut self.incoming)))
    }

    /// The first packet of a flight; [`nothing`] of an empty one.
    pub(crate) fn send(&mut self, flight: Vec<u8>) -> Vec<u8> {
        (self.outgoing, self.sent) = (flight, 0);
        self.next()
    }

    /// The next packet of the flight.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let rest = self.outgoing.get(self.sent..).unwrap_or_default();
        let (now, later) = rest.split_at(rest.len().min(TLS_FRAGMENT));
        let mut data = vec![if later.is_empty() { 0 } else { MORE }];
        // The length where there are several, in the first of them.
        if self.sent == 0 && !later.is_empty() {
            data[0] |= LENGTH;
            data.extend(u32::try_from(self.outgoing.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
        data.extend_from_slice(now);
        self.sent += now.len();
        data
    }

    const fn is_sending(&self) -> bool {
        self.sent < self.outgoing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries a flight from one end to the other; the packets that it took.
    fn carry(flight: &[u8]) -> usize {
        let (mut from, mut to) = (Fragments::default(), Fragments::default());
        let mut packet = from.send(flight.to_vec());
        for packets in 1..100 {
            assert!(packet.len() <= TLS_FRAGMENT + 5);
            match to.take(&packet).expect("a fragment") {
                Arrived::Flight(arrived) => {
                    assert_eq!(arrived, flight);
                    assert_eq!(from.take(&[]), Ok(Arrived::Flight(Vec::new())), "the turn goes back");
                    return packets;
                }
                Arrived::Partial => assert_eq!(from.take(&nothing()), Ok(Arrived::Next)),
                Arrived::Next => panic!("nothing was sent"),
            }
            packet = from.next();
        }
        panic!("no end");
    }

    #[test]
    fn flights_of_all_lengths() {
        for (len, packets) in
            [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (2_048, 2), (5_000, 5), (MAX_FLIGHT, 64)]
        {
            let flight: Vec<u8> = (0..len).map(|n| n.to_le_bytes()[0]).collect();
            assert_eq!(carry(&flight), packets, "{len}");
        }
    }

    #[test]
    fn lengths_that_lie() {
        let take = |packets: &[&[u8]]| {
            let mut fragments = Fragments::default();
            packets.iter().map(|data| fragments.take(data)).last().expect("a packet")
        };
        // Too long by its own words; longer, or shorter, than announced; announced twice; cut short.
        assert!(matches!(take(&[&[0xc0, 0, 1, 0, 1, 9]]), Err(Error::TooLong(_))));
        assert!(matches!(take(&[&[0x80, 0, 0, 0, 1, 9, 9]]), Err(Error::TooLong(_))));
        assert!(matches!(take(&[&[0x80, 0, 0, 0, 3, 9, 9]]), Err(Error::Malformed(_))));
        assert!(matches!(take(&[&[0xc0, 0, 0, 0, 3, 9], &[0x80, 0, 0, 0, 4, 9]]), Err(Error::Malformed(_))));
        assert!(matches!(take(&[&[0x80, 0, 0]]), Err(Error::Malformed(_))));
        // Some repeat the length in every fragment, some never say it.
        assert_eq!(take(&[&[0xc0, 0, 0, 0, 2, 1], &[0x80, 0, 0, 0, 2, 2]]), Ok(Arrived::Flight(vec![1, 2])));
        assert_eq!(take(&[&[0x40, 1], &[0, 2]]), Ok(Arrived::Flight(vec![1, 2])));
        // Never more than a flight, however it is cut.
        let mut fragments = Fragments::default();
        let piece = [&[MORE][..], &[7; 1_000]].concat();
        let taken = (0..100).take_while(|_| fragments.take(&piece).is_ok()).count();
        assert_eq!(taken, MAX_FLIGHT / 1_000);
    }

    #[test]
    fn data_while_sending_is_out_of_turn() {
        let mut fragments = Fragments::default();
        let _ = fragments.send(vec![0; 2_000]);
        assert!(matches!(fragments.take(&[0, 1]), Err(Error::Unexpected(_))));
        assert!(matches!(fragments.take(&[MORE]), Err(Error::Unexpected(_))));
    }
}
