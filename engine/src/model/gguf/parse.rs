//! The parser: reads forwards, counts its offset, and believes no length that the file cannot hold.

use std::collections::BTreeMap;
use std::io::Read;

use super::{Array, DEFAULT_ALIGNMENT, Gguf, GgufError, MAGIC, TensorInfo, TensorType, Value};

/// The type of a list.
const LIST: u32 = 9;
/// Lists within lists are read over down to this depth.
const DEEPEST_LIST: u32 = 8;
/// Longer lists of numbers of one or two bytes are read over.
const LONGEST_SMALL: u64 = 4096;

/// Tensors have at most this many dimensions.
const MAX_DIMS: u32 = 4;

pub(super) fn parse(reader: impl Read, file_bytes: u64) -> Result<Gguf, GgufError> {
    let mut r = Reader { inner: reader, offset: 0, file_bytes };
    let magic: [u8; 4] = r.array("the magic number")?;
    if magic != MAGIC {
        return Err(GgufError::Magic { found: magic });
    }
    let version = r.u32("the version")?;
    // The other byte order shows in the upper half, which versions do not reach.
    if version & 0xffff == 0 && version != 0 {
        return Err(GgufError::BigEndian { version: version.swap_bytes() });
    }
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version { version });
    }
    let tensor_count = r.u64("the tensor count")?;
    let metadata_count = r.u64("the metadata count")?;
    // An entry is never smaller than this, so counts that the file cannot hold are caught here.
    r.check_fits("the metadata", metadata_count, 8 + 4 + 1)?;
    r.check_fits("the tensor table", tensor_count, 8 + 4 + 8 + 4 + 8)?;

    let mut metadata = BTreeMap::new();
    for _ in 0..metadata_count {
        let at = r.offset;
        let key = r.string("a metadata key")?;
        let value = read_value(&mut r, &key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(corrupt(at, format!("metadata key `{key}` appears twice")));
        }
    }
    let alignment = check_alignment(&metadata)?;

    let mut entries = Vec::new();
    for _ in 0..tensor_count {
        entries.push(read_tensor_entry(&mut r)?);
    }
    let data_start = r.offset.next_multiple_of(alignment);
    let tensors = check_tensors(entries, data_start, alignment, file_bytes)?;
    Ok(Gguf { version, metadata, tensors, file_bytes, parts: Vec::new() })
}

fn corrupt(offset: u64, what: String) -> GgufError {
    GgufError::Corrupt { what, offset }
}

fn check_alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    match metadata.get(KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::Unsigned(value)) if value.is_power_of_two() && *value <= 1 << 20 => Ok(*value),
        Some(other) => Err(GgufError::BadKey {
            key: KEY.to_owned(),
            what: format!("must be a power of two up to 1048576, is {other:?}"),
        }),
    }
}

/// An entry of the tensor table as it stands in the file: the offset counts from the data's start.
struct Entry {
    name: String,
    info: TensorInfo,
    at: u64,
}

fn read_tensor_entry(r: &mut Reader<impl Read>) -> Result<Entry, GgufError> {
    let at = r.offset;
    let name = r.string("a tensor name")?;
    let of = |what: &str| format!("{what} of tensor `{name}`");
    let dims_at = r.offset;
    let dim_count = r.u32(&of("the number of dimensions"))?;
    if dim_count == 0 || dim_count > MAX_DIMS {
        let what = format!("tensor `{name}` has {dim_count} dimensions, not 1 to {MAX_DIMS}");
        return Err(corrupt(dims_at, what));
    }
    let mut dims = Vec::with_capacity(dim_count as usize);
    let mut elements: u64 = 1;
    for _ in 0..dim_count {
        let dim_at = r.offset;
        let dim = r.u64(&of("a dimension"))?;
        elements = match elements.checked_mul(dim) {
            Some(elements) if dim > 0 && elements <= i64::MAX as u64 => elements,
            _ => return Err(corrupt(dim_at, format!("tensor `{name}` has dimension {dim}"))),
        };
        dims.push(dim as usize);
    }
    dims.reverse();
    let type_at = r.offset;
    let id = r.u32(&of("the type"))?;
    let Some(dtype) = TensorType::from_id(id) else {
        return Err(GgufError::TensorType { name, id, offset: type_at });
    };
    let (row, block) = (dims[dims.len() - 1], dtype.block_size());
    if row % block != 0 {
        let what = format!("tensor `{name}` has rows of {row}, not a multiple of {block}");
        return Err(corrupt(dims_at, what));
    }
    let bytes = (elements / block as u64).checked_mul(dtype.type_size() as u64);
    let Some(bytes) = bytes else {
        return Err(corrupt(dims_at, format!("tensor `{name}` is larger than any file")));
    };
    let offset = r.u64(&of("the offset"))?;
    Ok(Entry { name, info: TensorInfo { dtype, dims, part: 0, offset, bytes }, at })
}

/// Turns offsets into offsets from the file's start and holds every tensor to the file. Tensors may
/// not overlap: with that, all of them together are never larger than the file.
fn check_tensors(
    mut entries: Vec<Entry>,
    data_start: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<BTreeMap<String, TensorInfo>, GgufError> {
    for Entry { name, info, at } in &mut entries {
        if info.offset % alignment != 0 {
            let what = format!("tensor `{name}` starts at {}, unaligned", info.offset);
            return Err(corrupt(*at, what));
        }
        let start = data_start.checked_add(info.offset);
        let end = start.and_then(|start| start.checked_add(info.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_bytes => info.offset = start,
            _ => {
                return Err(GgufError::Truncated {
                    what: format!("tensor `{name}`"),
                    offset: data_start.saturating_add(info.offset),
                    needed: info.bytes,
                    remaining: file_bytes.saturating_sub(data_start.saturating_add(info.offset)),
                });
            }
        }
    }
    entries.sort_by_key(|entry| entry.info.offset);
    for pair in entries.windows(2) {
        if pair[0].info.offset + pair[0].info.bytes > pair[1].info.offset {
            let what = format!("tensors `{}` and `{}` overlap", pair[0].name, pair[1].name);
            return Err(corrupt(pair[1].info.offset, what));
        }
    }
    let mut tensors = BTreeMap::new();
    for Entry { name, info, at } in entries {
        if tensors.insert(name.clone(), info).is_some() {
            return Err(corrupt(at, format!("tensor `{name}` appears twice")));
        }
    }
    Ok(tensors)
}

fn read_value(r: &mut Reader<impl Read>, key: &str) -> Result<Value, GgufError> {
    let at = r.offset;
    let id = r.u32("a value type")?;
    Ok(match id {
        0 => Value::Unsigned(u64::from(r.array::<1>(key)?[0])),
        1 => Value::Signed(i64::from(i8::from_le_bytes(r.array(key)?))),
        2 => Value::Unsigned(u64::from(u16::from_le_bytes(r.array(key)?))),
        3 => Value::Signed(i64::from(i16::from_le_bytes(r.array(key)?))),
        4 => Value::Unsigned(u64::from(r.u32(key)?)),
        5 => Value::Signed(i64::from(i32::from_le_bytes(r.array(key)?))),
        6 => Value::Float(f64::from(f32::from_le_bytes(r.array(key)?))),
        7 => Value::Bool(read_bool(r, key)?),
        8 => Value::String(r.string(key)?),
        9 => Value::Array(read_array(r, key)?),
        10 => Value::Unsigned(r.u64(key)?),
        11 => Value::Signed(i64::from_le_bytes(r.array(key)?)),
        12 => Value::Float(f64::from_le_bytes(r.array(key)?)),
        _ => return Err(corrupt(at, format!("metadata key `{key}` has value type {id}"))),
    })
}

fn read_bool(r: &mut Reader<impl Read>, key: &str) -> Result<bool, GgufError> {
    let at = r.offset;
    match r.array::<1>(key)?[0] {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(corrupt(at, format!("metadata key `{key}` has the truth value {other}"))),
    }
}

fn read_array(r: &mut Reader<impl Read>, key: &str) -> Result<Array, GgufError> {
    let at = r.offset;
    let id = r.u32("an element type")?;
    let count = r.u64("an array length")?;
    let Some(least) = least_bytes(id) else {
        let what = format!("metadata key `{key}` is a list of elements of type {id}");
        return Err(corrupt(at, what));
    };
    r.check_fits(&format!("metadata key `{key}`"), count, least)?;
    // Small numbers take eight times as much in memory, and no long list of them is ever read.
    if id == LIST || least <= 2 && count > LONGEST_SMALL {
        skip_elements(r, key, id, count, 0)?;
        return Ok(Array::Skipped(count));
    }
    fn collect<T, R: Read>(
        r: &mut Reader<R>,
        count: u64,
        mut element: impl FnMut(&mut Reader<R>) -> Result<T, GgufError>,
    ) -> Result<Vec<T>, GgufError> {
        // It grows with what is read, not with what is announced; by a quarter, not to the double,
        // because a list that a file's data are mistaken for is as long as the file.
        let mut values = Vec::new();
        for read in 0..count {
            if values.len() == values.capacity() {
                let more = (read / 4).max(LONGEST_SMALL).min(count - read);
                values.reserve_exact(more as usize);
            }
            values.push(element(r)?);
        }
        Ok(values)
    }
    Ok(match id {
        0 => Array::Unsigned(collect(r, count, |r| Ok(u64::from(r.array::<1>(key)?[0])))?),
        1 => Array::Signed(collect(r, count, |r| Ok(i64::from(i8::from_le_bytes(r.array(key)?))))?),
        2 => Array::Unsigned(collect(r, count, |r| {
            Ok(u64::from(u16::from_le_bytes(r.array(key)?)))
        })?),
        3 => {
            Array::Signed(collect(r, count, |r| Ok(i64::from(i16::from_le_bytes(r.array(key)?))))?)
        }
        4 => Array::Unsigned(collect(r, count, |r| Ok(u64::from(r.u32(key)?)))?),
        5 => {
            Array::Signed(collect(r, count, |r| Ok(i64::from(i32::from_le_bytes(r.array(key)?))))?)
        }
        6 => Array::Float(collect(r, count, |r| Ok(f32::from_le_bytes(r.array(key)?)))?),
        7 => Array::Bool(collect(r, count, |r| read_bool(r, key))?),
        8 => Array::String(collect(r, count, |r| r.string(key))?),
        10 => Array::Unsigned(collect(r, count, |r| r.u64(key))?),
        11 => Array::Signed(collect(r, count, |r| Ok(i64::from_le_bytes(r.array(key)?)))?),
        _ => Array::Float(collect(r, count, |r| Ok(f64::from_le_bytes(r.array(key)?) as f32))?),
    })
}

/// The least that an element of a list takes in the file; `None` for types that there are none of.
fn least_bytes(id: u32) -> Option<u64> {
    match id {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        8 | 10..=12 => Some(8),
        LIST => Some(4 + 8),
        _ => None,
    }
}

/// Reads over the elements of a list.
fn skip_elements(
    r: &mut Reader<impl Read>,
    key: &str,
    id: u32,
    count: u64,
    depth: u32,
) -> Result<(), GgufError> {
    let at = r.offset;
    let least = least_bytes(id).filter(|_| depth <= DEEPEST_LIST).ok_or_else(|| {
        corrupt(at, format!("metadata key `{key}` has a list of type {id} at depth {depth}"))
    })?;
    r.check_fits(&format!("metadata key `{key}`"), count, least)?;
    match id {
        8 => (0..count).try_for_each(|_| {
            let length = r.u64(key)?;
            r.skip(key, length)
        }),
        LIST => (0..count).try_for_each(|_| {
            let (id, count) = (r.u32(key)?, r.u64(key)?);
            skip_elements(r, key, id, count, depth + 1)
        }),
        _ => r.skip(key, count * least),
    }
}

/// Counts its offset and knows how much of the file is left.
struct Reader<R> {
    inner: R,
    offset: u64,
    file_bytes: u64,
}

impl<R: Read> Reader<R> {
    fn check_fits(&self, what: &str, count: u64, least_bytes: u64) -> Result<(), GgufError> {
        let needed = count.saturating_mul(least_bytes);
        let remaining = self.file_bytes.saturating_sub(self.offset);
        if needed <= remaining {
            return Ok(());
        }
        Err(GgufError::Truncated { what: what.to_owned(), offset: self.offset, needed, remaining })
    }

    fn fill(&mut self, what: &str, buffer: &mut [u8]) -> Result<(), GgufError> {
        self.check_fits(what, buffer.len() as u64, 1)?;
        self.inner.read_exact(buffer).map_err(|error| match error.kind() {
            // The file shrank after its length was read.
            std::io::ErrorKind::UnexpectedEof => GgufError::Truncated {
                what: what.to_owned(),
                offset: self.offset,
                needed: buffer.len() as u64,
                remaining: 0,
            },
            _ => GgufError::Io(error),
        })?;
        self.offset += buffer.len() as u64;
        Ok(())
    }

    fn skip(&mut self, what: &str, bytes: u64) -> Result<(), GgufError> {
        self.check_fits(what, bytes, 1)?;
        let skipped = std::io::copy(&mut (&mut self.inner).take(bytes), &mut std::io::sink())?;
        self.offset += skipped;
        if skipped == bytes {
            return Ok(());
        }
        // The file shrank after its length was read.
        let (what, needed) = (what.to_owned(), bytes - skipped);
        Err(GgufError::Truncated { what, offset: self.offset, needed, remaining: 0 })
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(what, &mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length and as many bytes. Vocabularies hold byte sequences that are no UTF-8, so those
    /// are replaced rather than refused.
    fn string(&mut self, what: &str) -> Result<String, GgufError> {
        let length = self.u64(what)?;
        self.check_fits(what, length, 1)?;
        let mut bytes = vec![0; length as usize];
        self.fill(what, &mut bytes)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}
