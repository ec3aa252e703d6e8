// Package procusage reads from Linux what processes have used: processor time and memory.
package procusage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
)

// ticks is the kernel's unit of processor time, per second: Linux always shows 100 to programs.
const ticks = 100

// Usage is what processes have used since they started.
type Usage struct {
	CPU      float64 // seconds
	Memory   float64 // MB, the sum of the processes' peaks
	Resident float64 // MB, now
}

// Of is the sum of some processes.
//
// Errors: one of them has ended.
func Of(processes []*subprocess.Process) (Usage, error) {
	var sum Usage
	for _, p := range processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
		}
		cpu, err := processorTime(string(stat))
		if err != nil {
			return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		if err != nil {
			return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
		}
		now, err := memoryOf(string(status), "VmRSS:")
		if err != nil {
			return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
		}
		peak, err := memoryOf(string(status), "VmHWM:")
		if err != nil {
			return Usage{}, fmt.Errorf("read usage of %s: %w", p.Name, err)
		}
		sum.CPU += cpu
		sum.Memory += peak
		sum.Resident += now
	}
	return sum, nil
}

// OwnTime is the processor time that this program has used.
func OwnTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for the calling process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processorTime reads user and system time from /proc/<pid>/stat. The program's name, in parentheses, may
// contain anything.
func processorTime(stat string) (float64, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time: %q is not a stat line", stat)
	}
	user, err := strconv.ParseUint(fields[11], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read user time: %w", err)
	}
	system, err := strconv.ParseUint(fields[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read system time: %w", err)
	}
	return float64(user+system) / ticks, nil
}

// memoryOf reads a size, in MB, from /proc/<pid>/status: VmRSS: is the resident memory, VmHWM: its peak.
func memoryOf(status, field string) (float64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kb * 1024 / 1e6, nil
		}
	}
	return 0, fmt.Errorf("read memory: no %s in status", field)
}
