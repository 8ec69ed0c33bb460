//! What a kernel is given: its arguments, and values in device memory.

use std::ffi::c_void;

/// Work on device memory, to be done once the stream is there.
pub(crate) type Work = Box<dyn Fn() + Send + Sync>;

/// Reads a launch's arguments and says what is to be done.
///
/// # Safety
/// The arguments are those of the kernel that the plan belongs to, and the addresses among them stay
/// valid until the work is done.
pub(crate) type Plan = unsafe fn(&Launch) -> Work;

/// The arguments of one launch.
pub(crate) struct Launch {
    params: *const *const c_void,
    pub(crate) grid_x: usize,
}

impl Launch {
    pub(crate) fn new(params: *const *const c_void, grid_x: u32) -> Launch {
        Launch { params, grid_x: grid_x as usize }
    }

    /// Argument number `index`.
    ///
    /// # Safety
    /// The kernel has that argument, of this type.
    pub(crate) unsafe fn arg<T: Copy>(&self, index: usize) -> T {
        // SAFETY: each parameter is a pointer to the argument, which has this type.
        unsafe { (*self.params.add(index)).cast::<T>().read_unaligned() }
    }

    /// Argument number `index`, a device address.
    ///
    /// # Safety
    /// The kernel has that argument, an address of values of this type.
    pub(crate) unsafe fn at<T>(&self, index: usize) -> Device<T> {
        // SAFETY: as the caller promises.
        Device(unsafe { self.arg::<u64>(index) } as *mut T)
    }
}

/// Values in device memory.
pub(crate) struct Device<T>(*mut T);

impl<T> Clone for Device<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Device<T> {}

// SAFETY: device memory is not tied to a thread; who uses it when is the program's business, as on
// a real device.
unsafe impl<T: Send> Send for Device<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Device<T> {}

impl<T: Copy> Device<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn new(address: u64) -> Device<T> {
        Device(address as *mut T)
    }

    /// Where the value at this index is.
    ///
    /// # Safety
    /// The index is within the values, or just behind them.
    pub(crate) unsafe fn at(self, index: usize) -> *mut T {
        // SAFETY: as the caller promises.
        unsafe { self.0.add(index) }
    }

    /// # Safety
    /// There is a value at this index.
    pub(crate) unsafe fn get(self, index: usize) -> T {
        // SAFETY: as the caller promises.
        unsafe { self.0.add(index).read_unaligned() }
    }

    /// # Safety
    /// There is room for a value at this index.
    pub(crate) unsafe fn set(self, index: usize, value: T) {
        // SAFETY: as the caller promises.
        unsafe { self.0.add(index).write_unaligned(value) }
    }
}

/// Dimensions and strides of a view, read from device memory when the work is done; none means that
/// it is contiguous.
pub(crate) struct Strides {
    dims: Vec<usize>,
    strides: Vec<usize>,
}

impl Strides {
    /// # Safety
    /// `info` is null or holds `rank` dimensions and, `which` groups of `rank` later, the strides.
    pub(crate) unsafe fn read(info: Device<usize>, rank: usize, which: usize) -> Strides {
        if info.is_null() {
            return Strides { dims: Vec::new(), strides: Vec::new() };
        }
        let group = |number: usize| {
            // SAFETY: as the caller promises.
            (0..rank).map(|i| unsafe { info.get(number * rank + i) }).collect()
        };
        Strides { dims: group(0), strides: group(which) }
    }

    /// Where the element number `index` of the view is.
    pub(crate) fn offset(&self, mut index: usize) -> usize {
        if self.dims.is_empty() {
            return index;
        }
        let mut offset = 0;
        for (dim, stride) in self.dims.iter().zip(&self.strides).rev() {
            offset += index % dim * stride;
            index /= dim;
        }
        offset
    }
}

pub(crate) fn half_to_f32(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f32::from(bits & 0x3ff) / 1024.0;
    sign * match exponent {
        0 => fraction * 2f32.powi(-14),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction) * 2f32.powi(exponent - 15),
    }
}
