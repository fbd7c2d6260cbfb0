//! Numbers too small to be normal count as zero in kernels, as in stock.
//!
//! Stock sets the processor so in all of its threads, which shows in results (a difference of two small numbers, a
//! comparison with zero) and keeps arithmetic fast, because processors handle such numbers in microcode.

/// Lets this thread's arithmetic read and write denormal numbers as zero.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(crate) fn flush_denormals() {
    /// Flush-to-zero and denormals-are-zero.
    const FLAGS: u32 = 0x8040;
    let mut state = 0u32;
    // SAFETY: the instructions touch `state` and the control register of this thread only. Compilers assume that the
    // register has its default value: what they compute beforehand keeps denormal numbers, which no code here relies on.
    // Rounding and exceptions stay as they are.
    unsafe {
        std::arch::asm!(
            "stmxcsr dword ptr [{state}]",
            "or dword ptr [{state}], {flags}",
            "ldmxcsr dword ptr [{state}]",
            state = in(reg) &raw mut state,
            flags = const FLAGS,
            options(nostack),
        );
    }
}

/// Lets this thread's arithmetic read and write denormal numbers as zero.
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
pub(crate) fn flush_denormals() {
    /// Flush-to-zero.
    const FLAGS: u64 = 1 << 24;
    let mut state: u64;
    // SAFETY: the instructions touch the control register of this thread only; see the other processor's.
    unsafe {
        std::arch::asm!("mrs {state}, fpcr", state = out(reg) state, options(nomem, nostack));
        std::arch::asm!("msr fpcr, {state}", state = in(reg) state | FLAGS, options(nomem, nostack));
    }
}

/// Lets denormal numbers be: there is no switch that we know.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn flush_denormals() {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn halves_of_the_least_normal_number_vanish() {
        let halved = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        assert!(halved() > 0.0);
        let flushed = std::thread::spawn(move || {
            flush_denormals();
            halved()
        });
        assert_eq!(flushed.join().expect("the thread ends"), 0.0);
        assert!(halved() > 0.0, "other threads are as they were");
    }
}
