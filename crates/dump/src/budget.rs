//! A limit on what is read, over all files.

use std::cell::Cell;
use std::io::{self, Read};

use crate::DumpError;

/// How many bytes, decompressed, may still be read.
pub(crate) struct Budget {
    limit: u64,
    left: Cell<u64>,
    exceeded: Cell<bool>,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, left: Cell::new(limit), exceeded: Cell::new(false) }
    }

    /// The error of a read: the limit where that is the cause, else what `otherwise` says.
    pub(crate) fn error(
        &self,
        file: &str,
        source: io::Error,
        otherwise: impl FnOnce(String, io::Error) -> DumpError,
    ) -> DumpError {
        if self.exceeded.get() {
            return DumpError::TooLarge { file: file.to_owned(), limit: self.limit };
        }
        otherwise(file.to_owned(), source)
    }

    /// How many of so many bytes may still be read.
    pub(crate) fn at_most(&self, bytes: u64) -> usize {
        usize::try_from(bytes.min(self.left.get())).unwrap_or_default()
    }

    /// A reader whose bytes count.
    pub(crate) fn count<R: Read>(&self, stream: R) -> Counted<'_, R> {
        Counted { budget: self, stream }
    }
}

pub(crate) struct Counted<'a, R> {
    budget: &'a Budget,
    stream: R,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        match self.budget.left.get().checked_sub(length as u64) {
            Some(left) => self.budget.left.set(left),
            None => {
                self.budget.exceeded.set(true);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the limit of the dump is reached"));
            }
        }
        Ok(length)
    }
}
