//! Metadata values and typed access to them.

use super::{Gguf, GgufError};

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer that is not negative, of any width.
    Unsigned(u64),
    /// A signed integer, of any width.
    Signed(i64),
    /// A float, of either width.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    String(String),
    /// Many values of one type.
    Array(Array),
}

/// Many values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Integers that are not negative.
    Unsigned(Vec<u64>),
    /// Signed integers.
    Signed(Vec<i64>),
    /// Floats.
    Float(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    String(Vec<String>),
    /// So many elements that were read over: lists, or more small numbers than anything reads.
    Skipped(u64),
}

impl Gguf {
    /// A whole number that is not negative; `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::BadKey`] where the value is of another type or negative.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(value)) => Ok(Some(*value)),
            Some(Value::Signed(value)) => match u64::try_from(*value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(bad(key, format!("is {value}, which is negative"))),
            },
            Some(other) => Err(bad(key, format!("must be a whole number, not {}", kind(other)))),
        }
    }

    /// A whole number that is not negative and must be there.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], or as [`Gguf::opt_u64`].
    pub fn need_u64(&self, key: &str) -> Result<u64, GgufError> {
        self.opt_u64(key)?.ok_or_else(|| GgufError::MissingKey { key: key.to_owned() })
    }

    /// A number; `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::BadKey`] where the value is no number.
    pub fn opt_f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(*value)),
            Some(Value::Unsigned(value)) => Ok(Some(*value as f64)),
            Some(Value::Signed(value)) => Ok(Some(*value as f64)),
            Some(other) => Err(bad(key, format!("must be a number, not {}", kind(other)))),
        }
    }

    /// A text; `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::BadKey`] where the value is no text.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(bad(key, format!("must be a string, not {}", kind(other)))),
        }
    }

    /// A truth value; `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::BadKey`] where the value is of another type.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(bad(key, format!("must be a boolean, not {}", kind(other)))),
        }
    }

    /// Texts; `None` where the key is absent.
    ///
    /// # Errors
    /// [`GgufError::BadKey`] where the value is of another type.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(values))) => Ok(Some(values)),
            Some(other) => Err(bad(key, format!("must be a list of strings, not {}", kind(other)))),
        }
    }
}

fn bad(key: &str, what: String) -> GgufError {
    GgufError::BadKey { key: key.to_owned(), what }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Unsigned(_) | Value::Signed(_) => "a whole number",
        Value::Float(_) => "a float",
        Value::Bool(_) => "a boolean",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
    }
}
