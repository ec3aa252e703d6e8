package embedded

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

type lock struct{ file *os.File }

// lockDirectory creates a directory and locks it for this process.
func lockDirectory(dir string) (*lock, error) {
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
	l := &lock{file}
	if err := l.sign(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// ErrInUse: another process has locked the data directory.
var ErrInUse = errors.New("in use by another server")

// sign writes the holder's process id into the lock file, for people; it also proves that the
// directory is writable.
func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (l *lock) release() error { return l.file.Close() }
