package reconcilers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// visitors is a roster whose others come and go as the test says.
type visitors struct {
	others  atomic.Int32
	changed atomic.Pointer[chan struct{}]
}

func (v *visitors) Others() int              { return int(v.others.Load()) }
func (v *visitors) Changed() <-chan struct{} { return *v.changed.Load() }

func (v *visitors) are(others int32) {
	v.others.Store(others)
	next := make(chan struct{})
	close(*v.changed.Swap(&next))
	synctest.Wait()
}

// TestCompanyLastsUntilNobodyHasBeenThereForAWhile: who has company takes tickets of
// the bus at once, and still does so while a replica is being replaced.
func TestCompanyLastsUntilNobodyHasBeenThereForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		there, c := &visitors{}, newCompany()
		first := make(chan struct{})
		there.changed.Store(&first)
		var taking atomic.Bool
		go c.keep(ctx, there)
		go c.during(ctx, func(ctx context.Context) {
			taking.Store(true)
			<-ctx.Done()
			taking.Store(false)
		})
		is := func(when string, company bool) {
			t.Helper()
			if synctest.Wait(); c.alone() == company || taking.Load() != company {
				t.Errorf("%s: alone is %t, and tickets are taken of the bus: %t", when, c.alone(), taking.Load())
			}
		}
		is("at first", false)
		there.are(1)
		is("somebody came", true)
		there.are(0)
		is("they left", true)
		time.Sleep(lonely - time.Second)
		there.are(1)
		time.Sleep(2 * time.Second)
		is("somebody else came", true)
		there.are(0)
		time.Sleep(lonely + time.Second)
		is("nobody came for long", false)
		there.are(1)
		is("somebody came again", true)
		cancel()
		if synctest.Wait(); taking.Load() {
			t.Error("tickets are taken after the end")
		}
	})
}
