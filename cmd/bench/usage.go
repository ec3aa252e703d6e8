package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is the kernel's unit of processor time, per second: Linux always shows 100 to programs.
const ticks = 100

// usage is what processes have used since they started.
type usage struct {
	cpu      float64 // seconds
	memory   float64 // MB, the sum of the processes' peaks
	resident float64 // MB, now
}

func usageOf(units []unit) (usage, error) {
	var sum usage
	for _, u := range units {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", u.process.PID))
		if err != nil {
			return usage{}, fmt.Errorf("read usage of %s: %w", u.process.Name, err)
		}
		cpu, err := processorTime(string(stat))
		if err != nil {
			return usage{}, fmt.Errorf("read usage of %s: %w", u.process.Name, err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", u.process.PID))
		if err != nil {
			return usage{}, fmt.Errorf("read usage of %s: %w", u.process.Name, err)
		}
		now, err := memoryOf(string(status), "VmRSS:")
		if err != nil {
			return usage{}, fmt.Errorf("read usage of %s: %w", u.process.Name, err)
		}
		peak, err := memoryOf(string(status), "VmHWM:")
		if err != nil {
			return usage{}, fmt.Errorf("read usage of %s: %w", u.process.Name, err)
		}
		sum.cpu += cpu
		sum.memory += peak
		sum.resident += now
	}
	return sum, nil
}

// ownTime is the processor time that this program has used.
func ownTime() time.Duration {
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
