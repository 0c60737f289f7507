//! Limits inside a file: for one line, for one record.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use crate::too_large;

/// The lines of a text, none longer than a limit. Line ends are left out.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    limit: u64,
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most `limit` bytes.
    pub fn new(reader: R, limit: u64) -> Self {
        Self { reader, limit }
    }

    fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        // Two more than a line may have: its end.
        self.reader.by_ref().take(self.limit.saturating_add(2)).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.pop_if(|byte| *byte == b'\n').is_some() {
            line.pop_if(|byte| *byte == b'\r');
        }
        if line.len() as u64 > self.limit {
            return Err(too_large("line", self.limit));
        }
        crate::text(line).map(Some)
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_line().transpose()
    }
}

/// Passes bytes on and fails when more than a limit went through since the last
/// [`RecordMeter::restart`]: one record then is larger than that. Clones share the count, so that
/// one can be read by a parser and another restarted by its caller.
#[derive(Debug, Clone)]
pub struct RecordMeter {
    limit: u64,
    left: Rc<Cell<u64>>,
}

impl RecordMeter {
    /// Records of about `limit` bytes at most: parsers read a little ahead.
    pub fn new(limit: u64) -> Self {
        Self { limit, left: Rc::new(Cell::new(limit)) }
    }

    /// A record has ended.
    pub fn restart(&self) {
        self.left.set(self.limit);
    }

    /// Reads through the meter.
    pub fn over<R: Read>(&self, reader: R) -> impl Read {
        Metered { meter: self.clone(), reader }
    }
}

struct Metered<R> {
    meter: RecordMeter,
    reader: R,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.meter.left.get();
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if room == 0 && !buffer.is_empty() {
            return Err(too_large("record", self.meter.limit));
        }
        let read = self.reader.read(&mut buffer[..room])?;
        self.meter.left.set(left - read as u64);
        Ok(read)
    }
}
