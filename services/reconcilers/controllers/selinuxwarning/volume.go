package selinuxwarning

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/claim"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// volume is a volume that nodes may mount with a label, by its unique name on nodes; the name of
// any other volume is empty. Such volumes are those of CSI drivers, iSCSI and Fibre Channel. A
// driver says itself whether it supports it.
type volume struct{ name, driver string }

// key is the volume's key. It shortens a name that is longer than object names can be, which a
// pod's author can cause.
func (v volume) key() events.Key {
	const most = 253
	if len(v.name) <= most {
		return events.Key{Name: v.name}
	}
	sum := sha256.Sum256([]byte(v.name))
	suffix := "~" + hex.EncodeToString(sum[:])
	return events.Key{Name: strings.ToValidUTF8(v.name[:most-len(suffix)], "") + suffix}
}

// is reports whether the volume has a key.
func (v volume) is(k events.Key) bool { return v.name != "" && v.key() == k }

// mounts reports whether nodes may mount the volume with a label.
//
// Upstream: pkg/volume/csi, SupportsSELinuxContextMount, and those of other plugins.
func (v volume) mounts(s reconcile.Snapshot) bool {
	if v.driver == "" {
		return v.name != ""
	}
	driver, ok := reconcile.Get(s, kinds.CSIDrivers, "", v.driver)
	return ok && mountsOf(driver)
}

// inline reports whether pods may name volumes like that of a key without a claim.
func inline(k events.Key) bool {
	of, csis := csi.Named(corev1.UniqueVolumeName(k.Name))
	return !csis || csi.TakenOver(of.Driver)
}

// volumeOf is the volume behind a PersistentVolume; ok is false if it belongs to a driver that
// replaced an in-tree plugin and cannot be translated.
func volumeOf(pv *corev1.PersistentVolume) (v volume, ok bool) {
	if of, csis := csi.VolumeOf(pv); csis {
		return volume{string(of.Name()), of.Driver}, true
	}
	if _, _, migrated := csi.Migrated(pv); migrated {
		return v, false
	}
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.ISCSI != nil:
		return target(source.ISCSI.TargetPortal, source.ISCSI.IQN, source.ISCSI.Lun), true
	case source.FC != nil:
		return channel(source.FC), true
	default:
		return v, true
	}
}

// named is the volume that a pod names without a claim. An inline volume of a CSI driver lives as
// long as its pod, which shares it with no other.
func named(of *corev1.Volume, namespace string) (v volume, ok bool) {
	if of.Projected != nil || of.ConfigMap != nil || of.Secret != nil || of.EmptyDir != nil || of.HostPath != nil {
		return v, true // nearly all are, and the turn of a volume looks at those of every pod
	}
	taken, migrated, ok := csi.Inline(of, namespace)
	switch {
	case migrated && ok:
		return volume{string(taken.Name()), taken.Driver}, true
	case migrated:
		return v, false
	case of.ISCSI != nil:
		return target(of.ISCSI.TargetPortal, of.ISCSI.IQN, of.ISCSI.Lun), true
	case of.FC != nil:
		return channel(of.FC), true
	default:
		return v, true
	}
}

// target is an iSCSI volume.
//
// Upstream: pkg/volume/iscsi, GetVolumeName.
func target(portal, iqn string, lun int32) volume {
	return volume{name: fmt.Sprintf("kubernetes.io/iscsi/%s:%s:%d", portal, iqn, lun)}
}

// channel is a Fibre Channel volume.
//
// Upstream: pkg/volume/fc, GetVolumeName.
func channel(of *corev1.FCVolumeSource) volume {
	switch {
	case len(of.TargetWWNs) > 0 && of.Lun != nil:
		return volume{name: fmt.Sprintf("kubernetes.io/fc/%v:%d", of.TargetWWNs, *of.Lun)}
	case len(of.WWIDs) > 0:
		return volume{name: fmt.Sprintf("kubernetes.io/fc/%v", of.WWIDs)}
	default:
		return volume{}
	}
}

// behind is the volume behind a pod's volume; ok is false if that is not known.
//
// Upstream: pkg/controller/volume/attachdetach/util, CreateVolumeSpec.
func behind(s reconcile.Snapshot, p *corev1.Pod, of *corev1.Volume) (v volume, ok bool) {
	name, _ := query.ClaimOf(p, of)
	if name == "" {
		return named(of, p.Namespace)
	}
	by, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, p.Namespace, name)
	if !ok || !claim.Used(p, of, by) {
		return v, false
	}
	pv, ok := reconcile.Get(s, kinds.PersistentVolumes, "", claim.Volume(by))
	if !ok || !claim.Bound(pv, by) {
		return v, false
	}
	return volumeOf(pv)
}
