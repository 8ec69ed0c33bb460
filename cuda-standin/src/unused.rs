//! Functions that candle's code refers to and the decode path never calls. They exist so that a
//! program links with the stand-in; a call is refused and remembered.

use crate::code::{self, Code};
use crate::state::lock;

macro_rules! unused {
    ($($name:ident => $refusal:expr),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name() -> Code {
            lock().violate(format!("{}: the stand-in does not have it", stringify!($name)));
            $refusal
        }
    )*};
}

/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const BLAS_NOT_SUPPORTED: Code = 15;

unused! {
    cuMemcpyPeerAsync => code::NOT_SUPPORTED,
    cuModuleLoad => code::NOT_SUPPORTED,
    cublasDgemmStridedBatched => BLAS_NOT_SUPPORTED,
}
