//! Host versions of the kernels that the decode path launches, by name and argument order as
//! candle's kernel library has them. Values are f32 where the kernel's are; sums run in order, so
//! that a result never depends on anything but the inputs.

use crate::launch::Plan;

mod elementwise;
mod quantised;
mod reduce;
mod rows;

pub(crate) fn find(name: &str) -> Option<Plan> {
    elementwise::find(name)
        .or_else(|| reduce::find(name))
        .or_else(|| rows::find(name))
        .or_else(|| quantised::find(name))
}
