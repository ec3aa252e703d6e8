package progress

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatTakesLongIsToldAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer // a step ends when its goroutine has written the last line
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
