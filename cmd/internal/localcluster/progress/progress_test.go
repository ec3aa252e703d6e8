package progress

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// said is the output for the user. It may be read concurrently with writes.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestWhatTakesLongIsToldAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told said
		p := New(&told)
		done := p.Step("building etcd")
		time.Sleep(100 * time.Second)
		done(nil)
		want := "building etcd ...\nbuilding etcd: 30s so far\nbuilding etcd: 1m0s so far\nbuilding etcd: 1m30s so far\nbuilding etcd: done in 1m40s\n"
		if told.String() != want {
			t.Errorf("a person is told\n%swant\n%s", told.String(), want)
		}
	})
}
