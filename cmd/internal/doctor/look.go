package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// reach is the time-out of the first request to the API server, and asking that of all others.
	reach, asking = 5 * time.Second, 15 * time.Second
)

// Cluster are the checks of an API server.
type Cluster struct {
	API *API
	// Needed are the needed rights, depending on whether the API server has constrained
	// impersonation.
	Needed func(constrains bool) []Needed
	// Acting are the controllers that act in this process; Waits is true if they wait for the Lease
	// of kube-controller-manager.
	Acting []string
	Waits  string
}

// Look runs the checks of the API server.
func (c Cluster) Look(ctx context.Context) []Finding {
	first, done := context.WithTimeout(ctx, reach)
	defer done()
	reached, told := c.API.Reach(first)
	all := reached.Findings(time.Now())
	if !reached.Well() {
		if reached.Code == 401 {
			all = append(all, c.API.Identity(ctx, reached.Code).Finding(time.Now()))
		} else {
			all = append(all, Unchecked("the API server does not answer", CheckIdentity)...)
		}
		why := "the API server does not answer"
		if reached.Code == 401 {
			why = "the API server does not know the credentials"
		}
		return append(append(all, Unchecked(why, CheckVersion, CheckClockServer)...), c.unasked(why)...)
	}
	ctx, end := context.WithTimeout(ctx, asking)
	defer end()
	var identity, manager Finding
	var known []Finding
	var side sync.WaitGroup
	side.Go(func() { identity = c.API.Identity(ctx, reached.Code).Finding(time.Now()) })
	side.Go(func() { manager = c.API.Managers(ctx).Finding(c.Acting, c.Waits) })
	side.Go(func() { known = c.versionAndRights(ctx) })
	side.Wait()
	return slices.Concat(all, []Finding{identity, ServerClock(told)}, known, []Finding{manager})
}

// unasked are findings for the checks that are left out, with the reason.
func (c Cluster) unasked(why string) (all []Finding) {
	for _, n := range c.Needed(true) {
		all = append(all, Unchecked(why, rightsOf+n.Part)...)
	}
	return append(all, Unchecked(why, CheckManager)...)
}

// versionAndRights checks the version, and the rights, which depend on the version.
func (c Cluster) versionAndRights(ctx context.Context) []Finding {
	version, err := c.API.Version(ctx)
	all := []Finding{version.Finding()}
	if err != nil {
		all = Unchecked(fmt.Sprintf("the API server does not tell its version: %v", err), CheckVersion)
	}
	for _, n := range c.Needed(version.Constrains()) {
		if n.Idle != "" {
			all = append(all, n.Finding(nil))
			continue
		}
		may, err := c.API.May(ctx, slices.Concat(n.All, n.Bounds))
		if err == nil && n.Finding(may).State != OK && len(n.Instead) > 0 {
			var classic map[Right]bool
			if classic, err = c.API.May(ctx, n.Instead); err == nil {
				for r, is := range classic {
					may[r] = is
				}
			}
		}
		if err != nil {
			all = append(all, Unchecked(fmt.Sprintf("the API server does not tell what we may do: %v", shortened(err)), rightsOf+n.Part)...)
			continue
		}
		all = append(all, n.Finding(may))
	}
	return all
}

// shortened is the first of joined errors.
func shortened(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		return shortened(joined.Unwrap()[0])
	}
	return err
}
