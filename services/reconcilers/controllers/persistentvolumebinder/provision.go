package persistentvolumebinder

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// inTree is the prefix of the names of provisioners that are part of Kubernetes. hostPath is
// the only one that is left, and creates directories on the machine on which it runs.
const (
	inTree   = "kubernetes.io/"
	hostPath = inTree + "host-path"
	nfs      = inTree + "nfs"
)

// drivers are the storage drivers that replaced in-tree provisioners.
//
// Upstream: k8s.io/csi-translation-lib, and pkg/volume/csimigration.
var drivers = map[string]string{
	inTree + "aws-ebs":         "ebs.csi.aws.com",
	inTree + "gce-pd":          "pd.csi.storage.gke.io",
	inTree + "azure-file":      "file.csi.azure.com",
	inTree + "azure-disk":      "disk.csi.azure.com",
	inTree + "cinder":          "cinder.csi.openstack.org",
	inTree + "vsphere-volume":  "csi.vsphere.vmware.com",
	inTree + "portworx-volume": "pxd.portworx.com",
}

// migrated returns the annotations with the driver that replaced a provisioner, and whether
// they differ from those of the object. known is false if the object has no provisioner.
//
// Upstream: updateMigrationAnnotations.
func migrated(notes map[string]string, provisioner string, known bool) (next map[string]string, differ bool) {
	driver := drivers[provisioner]
	if !known || notes[migratedTo] == driver {
		return notes, false
	}
	if next = maps.Clone(notes); driver != "" {
		next[migratedTo] = driver
	} else {
		delete(next, migratedTo)
	}
	return next, true
}

// provision asks the provisioner of a class for a volume, by annotations of the claim.
//
// Upstream: provisionClaim.
func (v View) provision(class string, now time.Time) reconcile.Decision {
	switch {
	case v.Static:
		return reconcile.Nothing("no volume matches the claim, and its class has no provisioner")
	case v.Class == nil:
		return v.fail("the claim's class is not there", fmt.Sprintf("storageclass.storage.k8s.io %q not found", class), now)
	}
	switch by := v.Class.Provisioner; {
	case drivers[by] != "":
		return v.external(drivers[by], now)
	case by == hostPath:
		return v.local(now)
	case by == nfs:
		return v.fail("the claim's provisioner makes no volumes", "no provisionable volume plugin matched", now)
	case strings.HasPrefix(by, inTree):
		return v.fail("there is no such provisioner", "no volume plugin matched name: "+by, now)
	default:
		return v.external(by, now)
	}
}

func (v View) fail(because, message string, now time.Time) reconcile.Decision {
	return v.tell(now, because, warning(provisioningFailed, message))
}

// external leaves the claim to an external provisioner.
//
// Upstream: provisionClaimOperationExternal, setClaimProvisioner.
func (v View) external(by string, now time.Time) reconcile.Decision {
	if v.Claim.Annotations[provisioner] != by {
		return v.ask(by)
	}
	return v.tell(now, "the provisioner has been asked for a volume", normal(externalProvisioning, fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' "+
		"or manually by the system administrator. If volume creation is delayed, please verify that "+
		"the provisioner is running and correctly registered.", by)))
}

// ask writes the provisioner of the volume into the claim.
func (v View) ask(by string) reconcile.Decision {
	failed := warning(provisioningFailed, "Error saving claim: {error}")
	failed.About = reconcile.About(kinds.PersistentVolumeClaims.Kind, v.Claim)
	d := v.update("no volume fits the claim: the provisioner of its class is to make one", func(next *corev1.PersistentVolumeClaim) {
		next.Annotations[provisioner], next.Annotations[betaProvisioner] = by, by
		next.Annotations, _ = migrated(next.Annotations, by, true)
	}, reconcile.WithEvents(nil, &failed))
	d.Figures = v.refused(by)
	return d
}

// local is the host-path provisioner, which is disabled.
//
// Upstream: provisionClaimOperation, with --enable-hostpath-provisioner=false.
func (v View) local(now time.Time) reconcile.Decision {
	switch {
	case v.Claim.Spec.DataSource != nil:
		return v.fail("the claim's provisioner copies no data", fmt.Sprintf("plugin %q is not a CSI plugin. Only CSI plugin can provision a claim with a datasource", hostPath), now)
	case v.Claim.Annotations[provisioner] != hostPath:
		return v.ask(hostPath)
	case len(v.Class.MountOptions) > 0:
		return v.fail("the claim's provisioner knows no mount options",
			fmt.Sprintf("Mount options are not supported by the provisioner but StorageClass %q has mount options %v", v.Class.Name, v.Class.MountOptions), now)
	default:
		return v.fail("the claim's provisioner is switched off", fmt.Sprintf("Failed to create provisioner: provisioning in volume plugin %q is disabled", hostPath), now)
	}
}
