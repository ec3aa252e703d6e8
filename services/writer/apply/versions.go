package apply

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

const (
	// versionReads is how many versions are read at a time.
	versionReads = 4
	// versionsTimeout bounds the reads of all versions: a watch of the history takes a second.
	versionsTimeout = time.Second / 2
)

// existence is what the versions of the API server say about an object.
type existence int

const (
	notRead existence = iota // not all versions could be read
	neverExisted
	existed
)

// errExisted ends the reads of versions.
var errExisted = errors.New("the object existed")

// readVersions looks for the object of a create in doubt in each version of the API server that the
// record does not reach. An object that was created and deleted between two versions exists at the
// version of its creation, so no version can be left out. It reads for one create at a time: once
// that is made, the record of the kind goes on, which settles the other doubts. An actor with a
// limited rate reads nothing.
func (d *Client) readVersions(ctx context.Context, a Actor, client *apiclient.Client, r plan.Request, doubt plan.Doubt) existence {
	from, to, ok := doubt.Unread()
	if _, limited := d.paces[a]; limited || !ok {
		return notRead
	}
	select {
	case d.readsVersions <- struct{}{}:
		defer func() { <-d.readsVersions }()
	default:
		return notRead
	}
	ctx, cancel := context.WithTimeout(ctx, versionsTimeout)
	defer cancel()
	reads, reading := errgroup.WithContext(ctx)
	reads.SetLimit(versionReads)
	for version := from; version <= to; version++ {
		reads.Go(func() error { return absentAt(reading, client, r, version) })
	}
	switch err := reads.Wait(); {
	case errors.Is(err, errExisted):
		return existed
	case err != nil:
		return notRead
	default:
		return neverExisted
	}
}

// absentAt returns nil if the API server had no object of the name at a version.
//
// Errors: errExisted; the version cannot be read, for example since it was compacted.
func absentAt(ctx context.Context, client *apiclient.Client, r plan.Request, version uint64) error {
	list, failed, err := client.Probe(ctx, r, metav1.ListOptions{
		FieldSelector: byName(r), ResourceVersion: strconv.FormatUint(version, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if failed != nil {
		return fmt.Errorf("read version %d: %s", version, failed.Message)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read version %d: %w", version, err)
	case list.ResourceVersion != strconv.FormatUint(version, 10):
		return fmt.Errorf("read version %d: the API server answers with version %q", version, list.ResourceVersion)
	case len(list.Items) > 0:
		return errExisted
	default:
		return nil
	}
}
