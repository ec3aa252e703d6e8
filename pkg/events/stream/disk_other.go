//go:build !linux

package stream

// disk leaves it to the server how many bytes the streams may take up.
func disk(string) int64 { return 0 }
