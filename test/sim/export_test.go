package sim_test

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/test/sim/world"
)

// exports are the records of worlds, in one zip file. A record is packed already.
type exports struct {
	mu   sync.Mutex
	file *os.File
	zip  *zip.Writer
}

func newExports(t *testing.T, name string) *exports {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return &exports{file: file, zip: zip.NewWriter(file)}
}

// add exports the record of a world under the name of its shape and seed.
func (e *exports) add(t *testing.T, w *world.World, shape string, seed uint64) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	name := fmt.Sprintf("%s-%d.millrace", strings.NewReplacer(", ", "-", " ", "-").Replace(shape), seed)
	out, err := e.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
	if err == nil {
		_, err = archive.Export(t.Context(), w.Archive(), io.Writer(out), archive.Selection{Program: "test/sim"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (e *exports) close(t *testing.T) {
	t.Helper()
	if err := e.zip.Close(); err != nil {
		t.Error(err)
	}
	if err := e.file.Close(); err != nil {
		t.Error(err)
	}
}
