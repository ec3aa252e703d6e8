package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is a file beside the streams. It stays when the lock is released: only the kernel's
// lock on it matters, and the kernel releases that when the holder ends.
const lockName = "lock"

// Lock is the lock of this process on a data directory.
type Lock struct{ file *os.File }

// Acquire creates a directory and locks it for this process.
//
// Errors: [ErrInUse]; the directory cannot be created or written.
func Acquire(dir string) (*Lock, error) {
	if dir == "" {
		return nil, errors.New("no directory given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(file.Name())
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (process %s)", ErrInUse, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	l := &Lock{file}
	if err := l.sign(); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return l, nil
}

// ErrInUse: another process has locked the data directory.
var ErrInUse = errors.New("in use by another server")

// sign writes the holder's process id into the lock file, for people; it also proves that the
// directory is writable.
func (l *Lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Release gives the directory free. The lock file stays.
//
// Errors: the file cannot be closed.
func (l *Lock) Release() error { return l.file.Close() }
