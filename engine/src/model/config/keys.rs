//! Metadata of one architecture, by the ends of their keys.

use crate::model::architectures::Architecture;
use crate::model::gguf::{Array, Gguf, GgufError, Value};

pub(super) struct Keys<'a> {
    pub(super) gguf: &'a Gguf,
    pub(super) architecture: &'static Architecture,
}

impl Keys<'_> {
    pub(super) fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture.name())
    }

    pub(super) fn bad(&self, suffix: &str, what: String) -> GgufError {
        GgufError::BadKey { key: self.name(suffix), what }
    }

    pub(super) fn missing(&self, suffix: &str) -> GgufError {
        GgufError::MissingKey { key: self.name(suffix) }
    }

    /// A size that must be there: from 1 to 2³¹.
    pub(super) fn size(&self, suffix: &str) -> Result<usize, GgufError> {
        self.opt_size(suffix)?.ok_or_else(|| self.missing(suffix))
    }

    pub(super) fn opt_size(&self, suffix: &str) -> Result<Option<usize>, GgufError> {
        let key = self.name(suffix);
        self.gguf.opt_u64(&key)?.map(|value| check_size(&key, value)).transpose()
    }

    /// A size, of which 0 means that there is none.
    pub(super) fn opt_size_or_none(&self, suffix: &str) -> Result<Option<usize>, GgufError> {
        match self.gguf.opt_u64(&self.name(suffix))? {
            None | Some(0) => Ok(None),
            Some(_) => self.opt_size(suffix),
        }
    }

    /// A size for each layer: one for all, or a list.
    pub(super) fn per_layer(
        &self,
        suffix: &str,
        layers: usize,
    ) -> Result<Option<Vec<usize>>, GgufError> {
        let key = self.name(suffix);
        let of = |values: Vec<u64>| -> Result<Vec<usize>, GgufError> {
            if values.len() != layers {
                let what = format!("lists {} layers, the model has {layers}", values.len());
                return Err(self.bad(suffix, what));
            }
            values.into_iter().map(|value| check_size(&key, value)).collect()
        };
        match self.gguf.metadata.get(&key) {
            Some(Value::Array(Array::Unsigned(values))) => of(values.clone()).map(Some),
            Some(Value::Array(Array::Signed(values))) => {
                of(values.iter().map(|&value| value.max(0) as u64).collect()).map(Some)
            }
            _ => Ok(self.opt_size(suffix)?.map(|value| vec![value; layers])),
        }
    }

    /// A size that may stand for each layer but must be the same for all.
    pub(super) fn same_for_all(
        &self,
        suffix: &str,
        layers: usize,
    ) -> Result<Option<usize>, GgufError> {
        let Some(values) = self.per_layer(suffix, layers)? else { return Ok(None) };
        match values.iter().find(|&value| value != &values[0]) {
            Some(other) => {
                let what = format!(
                    "is {} and {other}: layers that differ in it are not supported",
                    values[0]
                );
                Err(self.bad(suffix, what))
            }
            None => Ok(values.first().copied()),
        }
    }

    /// A truth value for each layer, where the file lists them.
    pub(super) fn flags(
        &self,
        suffix: &str,
        layers: usize,
    ) -> Result<Option<Vec<bool>>, GgufError> {
        let flags: Vec<bool> = match self.gguf.metadata.get(&self.name(suffix)) {
            Some(Value::Array(Array::Bool(values))) => values.clone(),
            Some(Value::Array(Array::Unsigned(values))) => values.iter().map(|&v| v != 0).collect(),
            Some(Value::Array(Array::Signed(values))) => values.iter().map(|&v| v != 0).collect(),
            _ => return Ok(None),
        };
        if flags.len() != layers {
            let what = format!("lists {} layers, the model has {layers}", flags.len());
            return Err(self.bad(suffix, what));
        }
        Ok(Some(flags))
    }

    pub(super) fn opt_positive(&self, suffix: &str) -> Result<Option<f32>, GgufError> {
        let Some(value) = self.gguf.opt_f64(&self.name(suffix))? else { return Ok(None) };
        let fits = value.is_finite() && value > 0.0 && (value as f32).is_finite();
        fits.then_some(Some(value as f32))
            .ok_or_else(|| self.bad(suffix, format!("must be a positive number, is {value}")))
    }

    pub(super) fn positive(&self, suffix: &str, default: f64) -> Result<f32, GgufError> {
        Ok(self.opt_positive(suffix)?.unwrap_or(default as f32))
    }
}

/// Sizes from metadata are whole numbers from 1 to 2³¹.
fn check_size(key: &str, value: u64) -> Result<usize, GgufError> {
    match usize::try_from(value) {
        Ok(size) if (1..=1 << 31).contains(&size) => Ok(size),
        _ => Err(GgufError::BadKey {
            key: key.to_owned(),
            what: format!("must be from 1 to 2147483648, is {value}"),
        }),
    }
}
