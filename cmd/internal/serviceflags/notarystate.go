package serviceflags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/notary"
)

// notaryState are the flags for the file in which a notary keeps what it has signed, outside the bus.
type notaryState struct {
	file  string
	begin bool
}

func (o *notaryState) add(f *pflag.FlagSet) {
	f.StringVar(&o.file, "notary-state", o.file, "`file` with the notary's own copy of what it has signed (default: the key file with the suffix .state)")
	f.BoolVar(&o.begin, "notary-begin-anew", o.begin, "start once although what the notary has signed is no longer on the bus; the first pages record that")
}

// open opens the state file, and verifies that it can be written.
func (o *notaryState) open(key string) (*stateFile, error) {
	s := &stateFile{o.file}
	if s.name == "" {
		s.name = key + ".state"
	}
	text, err := s.Load()
	if err == nil {
		err = s.Save(text)
	}
	if err != nil {
		return nil, fmt.Errorf("keep what the notary has signed: %w; name a file in a directory of its own that it may write with --notary-state", err)
	}
	return s, nil
}

// stateFile is a [notary.Memory].
type stateFile struct{ name string }

// Load implements [notary.Memory].
func (s *stateFile) Load() ([]byte, error) {
	text, err := os.ReadFile(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return text, err
}

// Save implements [notary.Memory]. It is atomic: the file has the old or the new content, also
// after a power failure.
func (s *stateFile) Save(text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(s.name), filepath.Base(s.name)+".part-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// goneMetric exports whether the notary has stopped because what it has signed is gone from the bus.
func goneMetric(n *notary.Notary) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_notary_gone", Help: "1 while messages that this notary has signed are missing from the bus, so that it signs nothing.",
	}, func() float64 {
		if errors.Is(n.Healthy(), notary.ErrGone) {
			return 1
		}
		return 0
	})
}
