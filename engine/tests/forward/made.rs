//! Small models as the fixtures of `tests/fixtures/architectures` describe them: every element follows
//! from its tensor's name and its index, as `record.py` there computes it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use engine::model::Transformer;
use engine::model::gguf::{Array, Blocks, Gguf, TensorPlan, Value, write_gguf};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

/// A tensor's dimensions and the range of its elements.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) dims: Vec<usize>,
    pub(crate) offset: f32,
    pub(crate) scale: f64,
}

/// A model that is not written yet, so that tests may change it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, Tensor>,
}

pub(crate) fn fixture(name: &str) -> Json {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/architectures");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

impl Made {
    pub(crate) fn of(fixture: &Json) -> Self {
        let architecture = fixture["architecture"].as_str().unwrap().to_owned();
        let mut metadata =
            BTreeMap::from([("general.architecture".to_owned(), Value::String(architecture))]);
        for (key, value) in fixture["metadata"].as_object().unwrap() {
            metadata.insert(key.clone(), metadata_value(value));
        }
        let tensors = fixture["tensors"].as_object().unwrap().iter().map(|(name, tensor)| {
            let dims = tensor["dims"].as_array().unwrap();
            let dims = dims.iter().map(|dim| dim.as_u64().unwrap() as usize).collect();
            let number = |key: &str| tensor[key].as_f64().unwrap();
            let (offset, scale) = (number("offset") as f32, number("scale"));
            (name.clone(), Tensor { dims, offset, scale })
        });
        Self { metadata, tensors: tensors.collect() }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::of(&fixture(name))
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.metadata.insert(key.to_owned(), value);
        self
    }

    pub(crate) fn tensor(mut self, name: &str, dims: &[usize]) -> Self {
        let tensor = Tensor { dims: dims.to_vec(), offset: 0.0, scale: 0.1 };
        self.tensors.insert(name.to_owned(), tensor);
        self
    }

    pub(crate) fn without(mut self, end: &str) -> Self {
        self.tensors.retain(|name, _| !name.ends_with(end));
        self
    }

    /// Over all elements, in the order of the tensors' names.
    pub(crate) fn sha256(&self) -> String {
        let mut digest = Sha256::new();
        for (name, tensor) in &self.tensors {
            digest.update(bytes_of(name, tensor));
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn write(&self, path: &Path) {
        let metadata: Vec<_> =
            self.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let plans = self.tensors.iter().map(|(name, tensor)| TensorPlan {
            name: name.clone(),
            dtype: GgmlDType::F32,
            dims: tensor.dims.clone(),
        });
        let plans: Vec<_> = plans.collect();
        let mut file = io::BufWriter::new(std::fs::File::create(path).unwrap());
        write_gguf(&mut file, &metadata, &plans, &mut Elements(self)).unwrap();
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        self.write(&path);
        std::fs::read(path).unwrap()
    }

    pub(crate) fn load(&self) -> anyhow::Result<Transformer> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        self.write(&path);
        load(&path)
    }

    /// Writes it as two parts, `STEM-0000N-of-00002.gguf`, and returns their paths.
    pub(crate) fn write_split(&self, folder: &Path, stem: &str) -> [PathBuf; 2] {
        let half = self.tensors.len() / 2;
        [0, 1].map(|number| {
            let tensors = self.tensors.iter().skip(number * half);
            let tensors = tensors.take(if number == 0 { half } else { usize::MAX });
            let tensors = tensors.map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
            let metadata = if number == 0 { self.metadata.clone() } else { BTreeMap::new() };
            let part = Self { metadata, tensors }
                .with("split.no", Value::Unsigned(number as u64))
                .with("split.count", Value::Unsigned(2))
                .with("split.tensors.count", Value::Unsigned(self.tensors.len() as u64));
            let path = folder.join(format!("{stem}-{:05}-of-00002.gguf", number + 1));
            part.write(&path);
            path
        })
    }

    /// The error that loading it gives.
    pub(crate) fn refused(&self) -> String {
        format!("{:#}", self.load().unwrap_err())
    }
}

pub(crate) fn load(path: &Path) -> anyhow::Result<Transformer> {
    let (gguf, _) = Gguf::read(path)?;
    Transformer::load(&gguf, path, &Device::Cpu)
}

fn metadata_value(value: &Json) -> Value {
    match value {
        Json::String(text) => Value::String(text.clone()),
        Json::Number(number) => match number.as_u64() {
            Some(whole) => Value::Unsigned(whole),
            None => Value::Float(number.as_f64().unwrap()),
        },
        Json::Array(values) => {
            Value::Array(Array::Unsigned(values.iter().map(|v| v.as_u64().unwrap()).collect()))
        }
        other => panic!("no metadata are like {other}"),
    }
}

struct Elements<'a>(&'a Made);

impl Blocks for Elements<'_> {
    fn write_blocks(&mut self, plan: &TensorPlan, writer: &mut dyn Write) -> io::Result<()> {
        writer.write_all(&bytes_of(&plan.name, &self.0.tensors[&plan.name]))
    }
}

/// `offset + scale·u` with u in [-1, 1), by SplitMix64 over the FNV-1a hash of the name.
fn bytes_of(name: &str, tensor: &Tensor) -> Vec<u8> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let step = (tensor.scale / 32768.0) as f32;
    let count = tensor.dims.iter().product::<usize>() as u64;
    let element = |index: u64| {
        let mut z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 48) as i32 - 32768) as f32 * step + tensor.offset
    };
    (1..=count).flat_map(|index| element(index).to_le_bytes()).collect()
}
