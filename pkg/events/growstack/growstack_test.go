package growstack

import "testing"

// deep needs about 10 KiB of stack.
//
//go:noinline
func deep(n int) int {
	var frame [200]byte
	frame[n%len(frame)] = byte(n)
	if n == 0 {
		return int(frame[0])
	}
	return deep(n-1) + int(frame[n%len(frame)])
}

// BenchmarkAGoroutine is a short goroutine that goes deep, with and without a stack that is large
// from the start.
func BenchmarkAGoroutine(b *testing.B) {
	for name, begin := range map[string]func(){"small": func() {}, "large": Grow} {
		b.Run(name, func(b *testing.B) {
			done := make(chan int)
			for b.Loop() {
				go func() { begin(); done <- deep(40) }()
				<-done
			}
		})
	}
}
