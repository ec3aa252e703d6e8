//go:build !linux

package datadir

import "errors"

// DefaultLimit leaves it to the server how many bytes the streams may take up.
func DefaultLimit(string) int64 { return 0 }

// Space is how many bytes are free where a directory is, and how many its files take up: this
// system is not asked.
func Space(string) (free, has int64, err error) { return 0, 0, errors.ErrUnsupported }
