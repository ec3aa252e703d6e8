// Package growstack gives a goroutine a large stack at once. A goroutine starts with a small stack,
// and each time that a call does not fit, the runtime doubles it and copies all frames. Goroutines
// that live for one request and go deep (TLS, JSON, reflection) spend a noticeable part of their
// time on that.
package growstack

// Grow makes the stack of the calling goroutine large enough for about 16 KiB of further calls. It
// is to be called first thing in a goroutine, when there is next to nothing to copy.
func Grow() { grow() }

// The frame of grow is what the stack has to have room for; the array is never touched.
//
//go:noinline
func grow() {
	var frame [16 << 10]byte
	use(&frame)
}

//go:noinline
func use(*[16 << 10]byte) {}
