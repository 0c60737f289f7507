//! Safe faces of the C++ shim (`shim/shim.cpp`): the only file that calls it.
//!
//! A `*mut C_tensor` of tch is an `at::Tensor*`, which is what the shim takes. Tensors handed over
//! are borrowed for the call; tensors handed back are owned by us.

#![expect(unsafe_code, reason = "this is the boundary to C++")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::{Device, TchError, Tensor};
use torch_sys::C_tensor;

pub type Handle = *mut C_tensor;
type Backward = extern "C" fn(*mut c_void, *const Handle, i64, *mut Handle, i64) -> c_int;
type TakeEvent = extern "C" fn(*mut c_void, *const c_char, u64, u64);
type Drop = extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn scalerl_last_error() -> *const c_char;
    fn scalerl_set_error(text: *const c_char);
    fn scalerl_open_cuda() -> c_int;
    fn scalerl_can_open(name: *const c_char) -> c_int;
    fn scalerl_open_for_all(path: *const c_char) -> c_int;
    fn scalerl_torch_version() -> u32;
    fn scalerl_exact_matmuls() -> c_int;
    fn scalerl_grad_enabled() -> c_int;
    fn scalerl_device_memory(device: i32, free: *mut u64, total: *mut u64) -> c_int;
    fn scalerl_peak_memory(device: i32, allocated: *mut u64, reserved: *mut u64) -> c_int;
    fn scalerl_reset_peak(device: i32) -> c_int;
    fn scalerl_count_cpu_memory() -> c_int;
    fn scalerl_cpu_memory(now: *mut u64, most: *mut u64);
    fn scalerl_reset_cpu_peak();
    fn scalerl_limit_cpu_memory(bytes: u64);
    fn scalerl_empty_cache() -> c_int;
    fn scalerl_synchronize(device: i32) -> c_int;
    fn scalerl_synchronize_stream(device: i32) -> c_int;
    fn scalerl_enter_stream(device: i32, is_urgent: c_int, before: *mut *mut c_void) -> c_int;
    fn scalerl_leave_stream(before: *mut c_void);
    fn scalerl_current_stream(device: i32, stream: *mut *mut c_void) -> c_int;
    fn scalerl_upload(tensor: Handle, device: i32, out: *mut Handle) -> c_int;
    fn scalerl_backward(outputs: *const Handle, grads: *const Handle, count: i64) -> c_int;
    fn scalerl_take_grad(leaf: Handle, grad: *mut Handle) -> c_int;
    fn scalerl_attach(
        outputs: *const Handle,
        made: i64,
        inputs: *const Handle,
        count: i64,
        backward: Backward,
        drop: Drop,
        state: *mut c_void,
    ) -> c_int;
    fn scalerl_fused_adamw(
        parameters: *const Handle,
        grads: *const Handle,
        first: *const Handle,
        second: *const Handle,
        steps: *const Handle,
        count: i64,
        lr: f64,
        beta1: f64,
        beta2: f64,
        weight_decay: f64,
        epsilon: f64,
        divisor: Handle,
        skip: Handle,
    ) -> c_int;
    fn scalerl_foreach_into(
        targets: *const Handle,
        sources: *const Handle,
        count: i64,
        replace: c_int,
    ) -> c_int;
    fn scalerl_fill_normal(tensor: Handle, spread: f64, seed: u64) -> c_int;
    fn scalerl_global_norm(tensors: *const Handle, count: i64, norm: *mut Handle) -> c_int;
    fn scalerl_flash_forward(
        q: Handle,
        k: Handle,
        v: Handle,
        starts: Handle,
        longest: i64,
        window: i64,
        scale: f64,
        out: *mut Handle,
    ) -> c_int;
    fn scalerl_cudnn_forward(
        q: Handle,
        k: Handle,
        v: Handle,
        scale: f64,
        out: *mut Handle,
    ) -> c_int;
    fn scalerl_profile_start() -> c_int;
    fn scalerl_profile_stop(state: *mut c_void, take: TakeEvent) -> c_int;
}

pub fn last_error() -> String {
    // SAFETY: the shim keeps a null-terminated string per thread, alive until the next call.
    unsafe { CStr::from_ptr(scalerl_last_error()) }.to_string_lossy().into_owned()
}

fn checked(code: c_int) -> Result<(), TchError> {
    if code == 0 { Ok(()) } else { Err(TchError::Torch(last_error())) }
}

pub fn handle(tensor: &Tensor) -> Handle {
    tensor.as_ptr().cast_mut()
}

pub fn handles<T: std::borrow::Borrow<Tensor>>(tensors: &[T]) -> Vec<Handle> {
    tensors.iter().map(|tensor| handle(tensor.borrow())).collect()
}

/// Calls a shim function that hands back one tensor.
fn returned(call: impl FnOnce(*mut Handle) -> c_int) -> Result<Option<Tensor>, TchError> {
    let mut out: Handle = std::ptr::null_mut();
    checked(call(&raw mut out))?;
    // SAFETY: the shim wrote either null or a tensor that we own from here on.
    Ok((!out.is_null()).then(|| unsafe { Tensor::from_ptr(out) }))
}

/// Opens libtorch's CUDA half where a driver is present; otherwise says why not.
pub fn open_cuda() -> Result<(), String> {
    // SAFETY: takes nothing, catches its exceptions.
    checked(unsafe { scalerl_open_cuda() }).map_err(|_| last_error())
}

/// The version of the libtorch in this process, such as `2.11.0`, where it says it.
pub fn torch_version() -> Option<String> {
    // SAFETY: takes nothing.
    let packed = unsafe { scalerl_torch_version() };
    let part = |shift: u32| packed >> shift & 0xff;
    (packed != 0).then(|| format!("{}.{}.{}", part(16), part(8), part(0)))
}

/// Whether a shared library is there, and if not, why.
pub fn can_open(name: &str) -> Result<(), String> {
    let name = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: the name outlives the call.
    checked(unsafe { scalerl_can_open(name.as_ptr()) }).map_err(|_| last_error())
}

/// Opens a library by its path and keeps it, so that whoever asks for it by name finds it.
pub fn open_for_all(path: &Path) -> Result<(), String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the path outlives the call.
    checked(unsafe { scalerl_open_for_all(path.as_ptr()) }).map_err(|_| last_error())
}

/// Switches TF32 off and FP32 accumulation on, for the whole process.
pub fn exact_matmuls() -> Result<(), TchError> {
    // SAFETY: sets process-wide flags of libtorch.
    checked(unsafe { scalerl_exact_matmuls() })
}

pub fn is_grad_enabled() -> bool {
    // SAFETY: reads a thread-local flag.
    unsafe { scalerl_grad_enabled() != 0 }
}

fn index(device: Device) -> i32 {
    match device {
        Device::Cuda(index) => index as i32,
        _ => 0,
    }
}

/// Free and total bytes of a CUDA device.
pub fn device_memory(device: Device) -> Result<(u64, u64), TchError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both targets live through the call.
    checked(unsafe { scalerl_device_memory(index(device), &raw mut free, &raw mut total) })?;
    Ok((free, total))
}

/// Peak bytes since the last reset: used by tensors, and taken from the device.
pub fn peak_memory(device: Device) -> Result<(u64, u64), TchError> {
    let (mut allocated, mut reserved) = (0, 0);
    // SAFETY: both targets live through the call.
    checked(unsafe { scalerl_peak_memory(index(device), &raw mut allocated, &raw mut reserved) })?;
    Ok((allocated, reserved))
}

/// Forgets the peak.
pub fn reset_peak(device: Device) -> Result<(), TchError> {
    // SAFETY: takes a plain number.
    checked(unsafe { scalerl_reset_peak(index(device)) })
}

/// From here on the bytes of tensors on the CPU are counted, in the whole process.
pub fn count_cpu_memory() -> Result<(), TchError> {
    // SAFETY: takes nothing, catches its exceptions.
    checked(unsafe { scalerl_count_cpu_memory() })
}

/// Bytes of tensors that were made on the CPU since they are counted: now, and the most at once since
/// [`reset_cpu_peak`].
pub fn cpu_memory() -> (u64, u64) {
    let (mut now, mut most) = (0, 0);
    // SAFETY: both targets live through the call.
    unsafe { scalerl_cpu_memory(&raw mut now, &raw mut most) };
    (now, most)
}

/// Forgets the most that was held on the CPU.
pub fn reset_cpu_peak() {
    // SAFETY: takes nothing.
    unsafe { scalerl_reset_cpu_peak() };
}

/// Where tensors on the CPU are counted, none is made that would bring them above so many bytes.
pub fn limit_cpu_memory(bytes: u64) {
    // SAFETY: takes a plain number.
    unsafe { scalerl_limit_cpu_memory(bytes) };
}

/// CUDA refuses to wait for a whole device, or to free its memory, while any of its streams is
/// being recorded, and spoils the recording. Whoever records or does either holds this.
static WHOLE_DEVICE: Mutex<()> = Mutex::new(());

pub fn whole_device() -> MutexGuard<'static, ()> {
    WHOLE_DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives cached device memory back to the driver.
pub fn empty_cache() -> Result<(), TchError> {
    let _alone = whole_device();
    // SAFETY: takes nothing.
    checked(unsafe { scalerl_empty_cache() })
}

/// Waits until the device has done what anybody asked of it; at once on the CPU.
pub fn synchronize(device: Device) -> Result<(), TchError> {
    let Device::Cuda(_) = device else { return Ok(()) };
    let _alone = whole_device();
    // SAFETY: takes a plain number.
    checked(unsafe { scalerl_synchronize(index(device)) })
}

/// Waits until the device has done what this thread asked of it; at once on the CPU.
pub fn synchronize_stream(device: Device) -> Result<(), TchError> {
    let Device::Cuda(_) = device else { return Ok(()) };
    // SAFETY: takes a plain number.
    checked(unsafe { scalerl_synchronize_stream(index(device)) })
}

/// Which of two streams with work the device serves first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Usual,
    /// Served before the usual: for short work that others wait for.
    Urgent,
}

/// A CUDA stream of its own for all that this thread asks of torch, until dropped. Nothing on
/// the CPU.
///
/// The work of two streams is in no order: whoever hands tensors from one to the other waits for
/// them ([`synchronize_stream`]).
#[derive(Debug)]
pub struct OwnStream {
    /// Belongs to the thread, so this cannot leave it; null on the CPU.
    before: *mut c_void,
}

impl OwnStream {
    pub fn enter(device: Device, priority: Priority) -> Result<Self, TchError> {
        let mut before = std::ptr::null_mut();
        if let Device::Cuda(_) = device {
            let is_urgent = c_int::from(priority == Priority::Urgent);
            // SAFETY: the target lives through the call.
            checked(unsafe { scalerl_enter_stream(index(device), is_urgent, &raw mut before) })?;
        }
        Ok(Self { before })
    }
}

impl std::ops::Drop for OwnStream {
    fn drop(&mut self) {
        if !self.before.is_null() {
            // SAFETY: made by `scalerl_enter_stream` on this thread, given back once.
            unsafe { scalerl_leave_stream(self.before) };
        }
    }
}

/// The CUstream torch works on, for kernels of our own.
pub fn current_stream(device: Device) -> Result<*mut c_void, TchError> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the target lives through the call.
    checked(unsafe { scalerl_current_stream(index(device), &raw mut stream) })?;
    Ok(stream)
}

/// Numbers as a tensor on a device. The host does not wait for what the device still has to do, as it
/// does for other copies.
pub fn upload<T: tch::kind::Element>(numbers: &[T], device: Device) -> Result<Tensor, TchError> {
    let here = Tensor::f_from_slice(numbers)?;
    if device == Device::Cpu {
        return Ok(here);
    }
    // SAFETY: the tensor is borrowed for the call; torch keeps its page-locked copy until it is over.
    let there = returned(|out| unsafe { scalerl_upload(handle(&here), index(device), out) });
    Ok(there?.expect("the shim returns a tensor or an error"))
}

/// Backward from any tensors, given the gradients of each.
pub fn backward(outputs: &[&Tensor], grads: &[&Tensor]) -> Result<(), TchError> {
    assert_eq!(outputs.len(), grads.len(), "one gradient per output");
    let (outputs, grads) = (handles(outputs), handles(grads));
    // SAFETY: both lists have `len` borrowed tensors.
    checked(unsafe { scalerl_backward(outputs.as_ptr(), grads.as_ptr(), outputs.len() as i64) })
}

/// Moves the gradient out of a leaf, so that its memory is free once used.
pub fn take_grad(leaf: &Tensor) -> Result<Option<Tensor>, TchError> {
    // SAFETY: the leaf is borrowed for the call.
    returned(|out| unsafe { scalerl_take_grad(handle(leaf), out) })
}

/// Fills a CPU tensor with normal numbers that depend on the seed and on nothing else.
pub fn fill_normal(tensor: &Tensor, spread: f64, seed: u64) -> Result<(), TchError> {
    // SAFETY: the tensor is borrowed for the call.
    checked(unsafe { scalerl_fill_normal(handle(tensor), spread, seed) })
}

/// The square root of the sum of all squares.
pub fn global_norm(tensors: &[Tensor]) -> Result<Tensor, TchError> {
    let list = handles(tensors);
    // SAFETY: the list has `len` borrowed tensors.
    let norm =
        returned(|out| unsafe { scalerl_global_norm(list.as_ptr(), list.len() as i64, out) });
    Ok(norm?.expect("the shim returns a tensor or an error"))
}

/// `targets[i] = sources[i]`, across kinds.
pub fn copy_each(targets: &[Tensor], sources: &[Tensor]) -> Result<(), TchError> {
    assert_eq!(targets.len(), sources.len(), "one source per target");
    let (to, from) = (handles(targets), handles(sources));
    // SAFETY: both lists have `len` borrowed tensors.
    checked(unsafe { scalerl_foreach_into(to.as_ptr(), from.as_ptr(), to.len() as i64, 1) })
}

/// Where packed sequences begin, the longest of them, and how many tokens a query sees, itself among
/// them.
pub struct PackedStarts {
    /// [sequences + 1] int32
    pub starts: Tensor,
    pub longest: i64,
    pub window: Option<i64>,
}

/// The numbers of one fused AdamW call.
#[derive(Debug, Clone, Copy)]
pub struct AdamWNumbers {
    pub lr: f64,
    pub betas: (f64, f64),
    pub weight_decay: f64,
    pub epsilon: f64,
}

/// The tensors of one fused AdamW call; the lists share an order.
pub struct AdamWTensors<'a> {
    pub parameters: &'a [Tensor],
    pub grads: &'a [Tensor],
    pub first: &'a [Tensor],
    pub second: &'a [Tensor],
    pub steps: &'a [Tensor],
    /// Every gradient is divided by this scalar first.
    pub divisor: &'a Tensor,
    /// 1 leaves parameters and moments as they are.
    pub skip: &'a Tensor,
}

pub fn fused_adamw(tensors: &AdamWTensors, numbers: AdamWNumbers) -> Result<(), TchError> {
    let [p, g, m, v, s] = [
        handles(tensors.parameters),
        handles(tensors.grads),
        handles(tensors.first),
        handles(tensors.second),
        handles(tensors.steps),
    ];
    assert!([&g, &m, &v, &s].iter().all(|list| list.len() == p.len()), "lists share a length");
    // SAFETY: five lists of `len` borrowed tensors and two borrowed scalars.
    checked(unsafe {
        scalerl_fused_adamw(
            p.as_ptr(),
            g.as_ptr(),
            m.as_ptr(),
            v.as_ptr(),
            s.as_ptr(),
            p.len() as i64,
            numbers.lr,
            numbers.betas.0,
            numbers.betas.1,
            numbers.weight_decay,
            numbers.epsilon,
            handle(tensors.divisor),
            handle(tensors.skip),
        )
    })
}

impl PackedStarts {
    pub(crate) fn share(&self) -> Self {
        Self { starts: self.starts.shallow_clone(), ..*self }
    }
}

/// What a forward pass of attention leaves for the backward pass.
#[derive(Debug)]
pub struct AttentionState {
    pub out: Tensor,
    pub lse: Tensor,
    /// Of noise that is never drawn; the backward pass asks for it.
    pub noise: [Tensor; 2],
}

fn attention_state(call: impl FnOnce(*mut Handle) -> c_int) -> Result<AttentionState, TchError> {
    let mut out: [Handle; 4] = [std::ptr::null_mut(); 4];
    checked(call(out.as_mut_ptr()))?;
    // SAFETY: the shim wrote four tensors that we own from here on.
    let [out, lse, seed, offset] = out.map(|handle| unsafe { Tensor::from_ptr(handle) });
    Ok(AttentionState { out, lse, noise: [seed, offset] })
}

/// Flash attention over packed sequences, without autograd; CUDA only.
pub fn flash_forward(
    [q, k, v]: [&Tensor; 3],
    packed: &PackedStarts,
    scale: f64,
) -> Result<AttentionState, TchError> {
    let (starts, longest) = (handle(&packed.starts), packed.longest);
    let window = packed.window.unwrap_or(0);
    // SAFETY: four borrowed tensors, four places.
    attention_state(|out| unsafe {
        scalerl_flash_forward(handle(q), handle(k), handle(v), starts, longest, window, scale, out)
    })
}

/// cuDNN's causal attention of [sequences, heads, length, width], without autograd; CUDA only.
pub fn cudnn_forward([q, k, v]: [&Tensor; 3], scale: f64) -> Result<AttentionState, TchError> {
    // SAFETY: three borrowed tensors, four places.
    attention_state(|out| unsafe {
        scalerl_cudnn_forward(handle(q), handle(k), handle(v), scale, out)
    })
}

/// One piece of work of the device.
#[derive(Debug, Clone)]
pub struct DeviceWork {
    pub name: String,
    pub start_ns: u64,
    pub length_ns: u64,
}

extern "C" fn take_event(state: *mut c_void, name: *const c_char, start: u64, length: u64) {
    // SAFETY: `state` is the list that `profile` lends; the name lives through the call.
    let (list, name) = unsafe { (&mut *state.cast::<Vec<DeviceWork>>(), CStr::from_ptr(name)) };
    let name = name.to_string_lossy().into_owned();
    list.push(DeviceWork { name, start_ns: start, length_ns: length });
}

/// Everything that CUDA devices did while `work` ran, by CUPTI.
pub fn profile<E: From<TchError>>(
    device: Device,
    work: impl FnOnce() -> Result<(), E>,
) -> Result<Vec<DeviceWork>, E> {
    synchronize(device)?;
    // SAFETY: takes nothing.
    checked(unsafe { scalerl_profile_start() })?;
    let outcome = work();
    synchronize(device)?;
    let mut list: Vec<DeviceWork> = Vec::new();
    // SAFETY: the list outlives the call, which is the only one to touch it.
    checked(unsafe { scalerl_profile_stop((&raw mut list).cast(), take_event) })?;
    outcome?;
    list.sort_by_key(|work| work.start_ns);
    Ok(list)
}

type BackwardFunction =
    Box<dyn FnMut(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, TchError> + Send>;

extern "C" fn run_backward(
    state: *mut c_void,
    grads: *const Handle,
    outputs: i64,
    out: *mut Handle,
    count: i64,
) -> c_int {
    // SAFETY: `state` is the box that `attach_all` leaked; the node calls from one thread at a time.
    let function = unsafe { &mut *state.cast::<BackwardFunction>() };
    // SAFETY: the node lends `outputs` gradients or nulls; the clones are further references to them.
    let grads: Vec<Option<Tensor>> = unsafe { std::slice::from_raw_parts(grads, outputs as usize) }
        .iter()
        .map(|grad| (!grad.is_null()).then(|| unsafe { Tensor::clone_from_ptr(*grad) }))
        .collect();
    // A panic must not unwind into C++.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| function(&grads)));
    let problem = match outcome {
        Ok(Ok(grads)) if grads.len() as i64 == count => {
            for (index, grad) in grads.into_iter().enumerate() {
                let Some(grad) = grad else { continue };
                let mut grad = std::mem::ManuallyDrop::new(grad);
                // SAFETY: `out` has `count` places; the node takes ownership of what we put there.
                unsafe { *out.add(index) = grad.as_mut_ptr() };
            }
            return 0;
        }
        Ok(Ok(grads)) => format!("{} gradients for {count} inputs", grads.len()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "a panic in a backward function".to_owned(),
    };
    let problem = CString::new(problem.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the shim copies the text.
    unsafe { scalerl_set_error(problem.as_ptr()) };
    1
}

extern "C" fn drop_backward(state: *mut c_void) {
    // SAFETY: the node calls this once, for the box that `attach_all` leaked.
    drop(unsafe { Box::from_raw(state.cast::<BackwardFunction>()) });
}

/// Makes `output`, computed without autograd, differentiable: `backward` gets the gradient of the
/// output and returns one gradient (or none) per input.
///
/// Does nothing where no gradient is wanted, so inference pays nothing.
pub fn attach(
    output: Tensor,
    inputs: &[&Tensor],
    mut backward: impl FnMut(&Tensor) -> Result<Vec<Option<Tensor>>, TchError> + Send + 'static,
) -> Result<Tensor, TchError> {
    attach_all(&[&output], inputs, move |grads| {
        backward(grads[0].as_ref().expect("a node is called with a gradient"))
    })?;
    Ok(output)
}

/// The same for several outputs of one operation: `backward` gets a gradient for each that has one.
pub fn attach_all(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    backward: impl FnMut(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, TchError> + Send + 'static,
) -> Result<(), TchError> {
    if !is_grad_enabled() || !inputs.iter().any(|input| input.requires_grad()) {
        return Ok(());
    }
    let state: Box<BackwardFunction> = Box::new(Box::new(backward));
    let (made, list) = (handles(outputs), handles(inputs));
    // SAFETY: both lists have `len` borrowed tensors; the shim owns the state from here on, whether or
    // not the call succeeds.
    checked(unsafe {
        scalerl_attach(
            made.as_ptr(),
            made.len() as i64,
            list.as_ptr(),
            list.len() as i64,
            run_backward,
            drop_backward,
            Box::into_raw(state).cast(),
        )
    })
}
