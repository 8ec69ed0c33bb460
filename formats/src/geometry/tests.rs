use proptest::prelude::*;

use super::*;

const TINY: &str = r#"
    architecture = "llama"
    layers = 2
    hidden = 64
    heads = 4
    kv_heads = 2
    ffn = 128
    vocab = 96
    context = 256
    quantisation = "q8_0"
    seed = 1
"#;

#[test]
fn a_description_is_parsed_with_its_defaults() {
    let geometry = Geometry::parse(TINY).unwrap();
    assert_eq!(geometry.head_dim, 16);
    assert_eq!(geometry.quantisation, Quantisation::Q8_0);
    assert!(!geometry.tied_embeddings);
    assert_eq!((geometry.rope_base, geometry.rms_eps), (10_000.0, 1e-5));
}

#[test]
fn an_unknown_key_names_the_nearest_known_one() {
    let error = Geometry::parse(&TINY.replace("kv_heads", "kvheads")).unwrap_err();
    assert_eq!(error.to_string(), "unknown key `kvheads`; the nearest known one is `kv_heads`");
}

#[test]
fn the_known_keys_are_those_of_the_raw_description() {
    let whole =
        format!("{TINY}\nhead_dim = 32\ntied_embeddings = true\nrope_base = 1e6\nrms_eps = 1e-6\n");
    let raw: RawGeometry = toml::from_str(&whole).unwrap();
    let written = toml::Table::try_from(raw).unwrap();
    let mut keys = KEYS.to_vec();
    keys.sort_unstable();
    assert_eq!(written.keys().map(String::as_str).collect::<Vec<_>>(), keys);
    assert!(Geometry::parse(&whole).is_ok());
}

#[test]
fn what_cannot_be_is_refused_by_key() {
    for (from, to, expected) in [
        ("kv_heads = 2", "kv_heads = 3", "`kv_heads`: must divide heads 4"),
        ("hidden = 64", "hidden = 66", "`heads`: does not divide hidden 66"),
        ("layers = 2", "layers = 0", "`layers`: must be from 1 to 16777216, is 0"),
        ("vocab = 96", "vocab = 16777217", "`vocab`: must be from 1 to 16777216, is 16777217"),
        (
            "\"q8_0\"",
            "\"q4_k\"",
            "`hidden`: a row of 64 is not a whole number of q4_k's blocks of 256",
        ),
        ("\"q8_0\"", "\"q9\"", "`quantisation`: `q9` is not supported; supported: f32, f16"),
        ("\"llama\"", "\"gpt\"", "`architecture`: architecture `gpt` is not supported"),
        ("seed = 1", "seed = 1\nhead_dim = 7", "`head_dim`: must be even and from 2 to 65536"),
        ("seed = 1", "seed = 1\nrope_base = -1.0", "`rope_base`: must be a positive number, is -1"),
        ("seed = 1", "seed = 1\nrms_eps = 1e-60", "`rms_eps`: must be a positive number"),
        ("seed = 1", "seed = 1\nrms_eps = nan", "`rms_eps`: must be a positive number, is NaN"),
        ("seed = 1", "", "TOML parse error"),
    ] {
        let error = Geometry::parse(&TINY.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// A published geometry, with every weight in F32 so that bytes count weights.
fn published(architecture: &str, numbers: [u64; 6], more: &str) -> Result<u64, GeometryError> {
    let [layers, hidden, heads, kv_heads, ffn, vocab] = numbers;
    let geometry = Geometry::parse(&format!(
        "architecture = \"{architecture}\"\nlayers = {layers}\nhidden = {hidden}\nheads = {heads}\n\
         kv_heads = {kv_heads}\nffn = {ffn}\nvocab = {vocab}\nquantisation = \"f32\"\n\
         context = 8192\nseed = 1\n{more}"
    ))?;
    Ok(geometry.weight_bytes() / 4)
}

#[test]
fn published_models_have_their_published_number_of_weights() {
    let tied = "tied_embeddings = true";
    let both = "head_dim = 128\ntied_embeddings = true";
    for (architecture, numbers, more, expected) in [
        ("llama", [30, 576, 9, 3, 1536, 49_152], tied, 134_515_008),
        ("llama", [16, 2048, 32, 8, 8192, 128_256], tied, 1_235_814_400),
        ("llama", [32, 4096, 32, 8, 14_336, 128_256], "", 8_030_261_248),
        ("qwen2", [24, 896, 14, 2, 4864, 151_936], tied, 494_032_768),
        ("qwen3", [28, 1024, 16, 8, 3072, 151_936], both, 596_049_920),
    ] {
        assert_eq!(published(architecture, numbers, more).unwrap(), expected);
    }
}

#[test]
fn quantised_matrices_take_their_blocks() {
    let bytes = |quantisation: &str| {
        let text = format!(
            "architecture = \"llama\"\nlayers = 1\nhidden = 256\nheads = 4\nkv_heads = 4\n\
             ffn = 256\nvocab = 256\nquantisation = \"{quantisation}\"\ncontext = 64\nseed = 1\n"
        );
        Geometry::parse(&text).unwrap().weight_bytes()
    };
    // 9 matrices of 256 rows of 256, and 3 norms of 256 weights.
    let norms = 3 * 256 * 4;
    assert_eq!(bytes("F16"), 9 * 65536 * 2 + norms);
    assert_eq!(bytes("q4_1"), 9 * 65536 / 32 * 20 + norms);
    assert_eq!(bytes("q4_k"), 9 * 65536 / 256 * 144 + norms);
}

proptest! {
    #[test]
    fn no_numbers_panic(numbers in any::<[u32; 6]>(), big in any::<[i64; 6]>()) {
        let _ = published("qwen2", numbers.map(u64::from), "");
        let _ = published("llama", big.map(i64::unsigned_abs), "");
    }

    #[test]
    fn the_largest_sizes_do_not_overflow(
        sizes in prop::array::uniform6(1_u64..=16_777_216), head_dim in 1_u64..=32_768,
    ) {
        let [layers, hidden, heads, ffn, vocab, _] = sizes;
        let more = format!("head_dim = {}", 2 * head_dim);
        prop_assert!(published("qwen2", [layers, hidden, heads, heads, ffn, vocab], &more).is_ok());
    }
}
