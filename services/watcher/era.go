package watcher

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// share tells the others which epoch the storage is in, and is told by them, until the
// context ends.
func (s *Service) share(ctx context.Context) {
	s.era.Share(ctx, s.config.Bus, func(err error) {
		klog.FromContext(ctx).Error(err, "Cannot talk about the storage's epoch")
	})
}

// errOutlived: another kind has found out that the storage went back.
var errOutlived = fmt.Errorf("%w, as another kind has shown", errRewound)

// outlived tells whether the epoch of a kind has ended.
func (k *kindWatch) outlived() bool {
	epoch, _ := k.era.Now()
	return epoch > k.cursor.Epoch
}
