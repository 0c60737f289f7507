/* Makes the CPU of one process look like that of a virtual machine that shows AMX but hides its
 * tile palette: every CPUID instruction faults (arch_prctl ARCH_SET_CPUID), is executed here, and
 * leaf 0x1D is answered with zeros. Loaded by hide_amx_palette.sh. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012

static struct sigaction before;

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) { /* a fault of another kind: let it happen */
        sigaction(SIGSEGV, &before, NULL);
        return;
    }
    unsigned a, b, c, d, leaf = registers[REG_RAX], part = registers[REG_RCX];
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1L);
    __cpuid_count(leaf, part, a, b, c, d);
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0L);
    if (leaf == 0x1d) a = b = c = d = 0;
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {0};
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0L) != 0) {
        fputs("this CPU or kernel cannot make CPUID fault: nothing is hidden\n", stderr);
        _exit(77);
    }
}
