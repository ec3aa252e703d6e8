package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// pageSize bounds what one answer of a paged list holds.
	pageSize = 500
	// streamPatience is how long a streamed list may be silent. A server that does not know the
	// request, or has nothing to list, sends nothing at all.
	streamPatience = 10 * time.Second
)

// Kind reads one kind. Only one Open may run at a time; the rest is safe for concurrent use.
type Kind struct {
	list  func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	paged bool // the server does not stream lists of this kind
}

// See is called with each object of a list. While a list is streamed, objects may also change and
// be deleted; gone is true for a deletion.
type See func(obj runtime.Object, gone bool) error

// errUnstreamed: the caller has to list page by page.
var errUnstreamed = errors.New("the API server does not stream this list")

// Open lists all objects and watches from there. It streams the list where the server can do that,
// and otherwise lists page by page. It may call see more than once for an object.
func (k *Kind) Open(ctx context.Context, see See) (version string, w watch.Interface, err error) {
	if !k.paged {
		version, w, err = k.stream(ctx, see)
		if !errors.Is(err, errUnstreamed) {
			return version, w, err
		}
		k.paged = true
	}
	if version, err = k.pages(ctx, see); err != nil {
		return "", nil, err
	}
	w, err = k.Watch(ctx, version)
	return version, w, err
}

// Position returns the newest version of the storage, and the named object if it exists; without a
// name, the version alone. It is a consistent read.
func (k *Kind) Position(ctx context.Context, namespace, name string) (version string, found metav1.Object, err error) {
	o := metav1.ListOptions{Limit: 1}
	if name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	page, err := k.list(ctx, namespace, o)
	if err != nil {
		return "", nil, fmt.Errorf("ask for the position: %w", err)
	}
	m, err := meta.ListAccessor(page)
	if err != nil {
		return "", nil, fmt.Errorf("ask for the position: %w", err)
	}
	if name == "" {
		return m.GetResourceVersion(), nil, nil
	}
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		found, err = meta.Accessor(obj)
		return err
	})
	return m.GetResourceVersion(), found, err
}

// Watch follows a kind from a version, with bookmarks.
func (k *Kind) Watch(ctx context.Context, version string) (watch.Interface, error) {
	w, err := k.watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}

// stream lists with a watch that sends the existing objects first.
func (k *Kind) stream(ctx context.Context, see See) (version string, w watch.Interface, err error) {
	initial := true
	w, err = k.watch(ctx, metav1.ListOptions{
		SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		return "", nil, unstreamed(err)
	}
	if version, err = initially(w, see); err != nil {
		w.Stop()
		return "", nil, err
	}
	return version, w, nil
}

func initially(w watch.Interface, see See) (version string, err error) {
	silence := time.NewTimer(streamPatience)
	defer silence.Stop()
	for {
		var event watch.Event
		var open bool
		select {
		case <-silence.C:
			return "", errUnstreamed
		case event, open = <-w.ResultChan():
		}
		silence.Reset(streamPatience)
		switch {
		case !open:
			return "", errors.New("list: the stream ended early")
		case event.Type == watch.Error:
			return "", unstreamed(apierrors.FromObject(event.Object))
		case event.Type == watch.Bookmark:
			m, err := meta.Accessor(event.Object)
			if err != nil {
				return "", fmt.Errorf("list: %w", err)
			}
			if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				return m.GetResourceVersion(), nil
			}
		default:
			if err := see(event.Object, event.Type == watch.Deleted); err != nil {
				return "", err
			}
		}
	}
}

// unstreamed marks the answers of a server that does not stream lists as errUnstreamed: to such a
// server the request is invalid.
func unstreamed(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) {
		return fmt.Errorf("%w: %w", errUnstreamed, err)
	}
	return fmt.Errorf("list: %w", err)
}

// pages lists page by page. The first page is a consistent read, so that the
// list is never older than what was watched before.
func (k *Kind) pages(ctx context.Context, see See) (version string, err error) {
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := k.list(ctx, "", o)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		if err := meta.EachListItem(page, func(obj runtime.Object) error { return see(obj, false) }); err != nil {
			return "", err
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return m.GetResourceVersion(), nil
		}
	}
}
