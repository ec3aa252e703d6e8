package datadir_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/millrace/millrace/pkg/events/stream/embedded/datadir"
)

// A data directory is for one process at a time.
func ExampleAcquire() {
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	lock, err := datadir.Acquire(dir)
	if err != nil {
		panic(err)
	}
	_, err = datadir.Acquire(dir)
	fmt.Println(errors.Is(err, datadir.ErrInUse))
	fmt.Println(lock.Release())
	// Output:
	// true
	// <nil>
}
