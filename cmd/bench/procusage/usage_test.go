package procusage

import "testing"

func TestUsageReadsTheKernelsNumbers(t *testing.T) {
	cpu, err := processorTime("42 (a (odd) name) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 100 1000 10")
	if err != nil || cpu != 2 {
		t.Errorf("processorTime = %v, %v; want 2 s", cpu, err)
	}
	if _, err := processorTime("42 (name) S 1"); err == nil {
		t.Error("a short line was accepted")
	}
	peak, err := memoryOf("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t  250000 kB\nVmRSS:\t 1 kB\n", "VmHWM:")
	if err != nil || peak != 256 {
		t.Errorf("peakMemory = %v, %v; want 256 MB", peak, err)
	}
	if _, err := memoryOf("Name:\tx\n", "VmHWM:"); err == nil {
		t.Error("a status without peak was accepted")
	}
}
