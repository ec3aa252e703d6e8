package sign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// rereads is how often a file in use is checked for changes.
	rereads = time.Second
	// largest is the maximum size of such a file, in bytes.
	largest = 1 << 20
)

// file is the parsed content of a file, which is checked for changes on use, at most once a
// second.
type file[T any] struct {
	path  string // "" for a fixed value
	parse func([]byte) (T, error)
	warn  func(error)

	mu     sync.Mutex
	now    T
	text   []byte
	looked time.Time
	wrong  string // last error passed to warn
}

func fixed[T any](value T) *file[T] { return &file[T]{now: value} }

func open[T any](path string, parse func([]byte) (T, error), warn func(error)) (*file[T], error) {
	f := &file[T]{path: path, parse: parse, warn: warn, looked: time.Now()}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file[T]) get() T { return f.within(rereads) }

// fresh is the current content of the file.
func (f *file[T]) fresh() T { return f.within(0) }

// within is the content of the file, at most age old.
func (f *file[T]) within(age time.Duration) T {
	if f.path == "" {
		return f.now
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= age {
		f.looked = now
		f.complain(f.load())
	}
	return f.now
}

// complain reports an error of the file, once.
func (f *file[T]) complain(err error) {
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	if err != nil && wrong != f.wrong && f.warn != nil {
		f.warn(fmt.Errorf("what it held before stays in force: %w", err))
	}
	f.wrong = wrong
}

// load replaces the value by the content of the file. After an error the old value stays.
func (f *file[T]) load() error {
	text, err := contents(f.path)
	if err != nil {
		return err
	}
	if bytes.Equal(text, f.text) {
		return nil
	}
	value, err := f.parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.now, f.text = value, text
	return nil
}

func contents(path string) ([]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, largest+1))
	if err == nil && len(text) > largest {
		err = errors.New("it is larger than any file of keys")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return text, nil
}
