/* The library that `nmcli connection import` and the desktop's programs load into themselves (libnm's NMVpnEditorPlugin). Owns nothing but the call of
 * `dormouse join --networkmanager --print`, which reads the file, and the reading of what that prints. It offers no dialog to edit a connection.
 *
 * Must never parse what a file holds: that is the work of a process of its own. */

#include <NetworkManager.h>
#include <string.h>

/* Longest connection that is taken, in bytes: names of three files, and lists of networks and algorithms. */
#define LONGEST (1 << 20)

typedef struct {
  GObject parent;
} DormousePlugin;

typedef struct {
  GObjectClass parent;
} DormousePluginClass;

enum { PROPERTY_NAME = 1, PROPERTY_DESCRIPTION, PROPERTY_SERVICE };

static void interface_init(NMVpnEditorPluginInterface *interface);

static GType dormouse_plugin_get_type(void);

G_DEFINE_TYPE_WITH_CODE(DormousePlugin, dormouse_plugin, G_TYPE_OBJECT,
                        G_IMPLEMENT_INTERFACE(NM_TYPE_VPN_EDITOR_PLUGIN, interface_init))

/* What `dormouse` has said of why it failed, without its name. */
static const char *reason(char *said) {
  g_strchomp(said);
  return g_str_has_prefix(said, "dormouse: ") ? said + strlen("dormouse: ") : said;
}

static NMConnection *import(NMVpnEditorPlugin *plugin, const char *path, GError **error) {
  /* Absolute, as the name might begin with a dash. */
  g_autofree char *absolute = g_canonicalize_filename(path, NULL);
  const char *command[] = {DORMOUSE, "join", "--networkmanager", "--print", absolute, NULL};
  g_autofree char *text = NULL, *said = NULL;
  int status;

  (void)plugin;
  /* It shares the terminal, where it may ask for a passphrase. */
  if (!g_spawn_sync(NULL, (char **)command, NULL, G_SPAWN_CHILD_INHERITS_STDIN, NULL, NULL, &text, &said, &status, error)) return NULL;
  NMConnection *connection = NULL;
  size_t length = strlen(text);
  if (!g_spawn_check_wait_status(status, NULL)) {
    g_set_error_literal(error, NM_VPN_PLUGIN_ERROR, NM_VPN_PLUGIN_ERROR_FAILED, reason(said));
  } else if (length > LONGEST) {
    g_set_error(error, NM_VPN_PLUGIN_ERROR, NM_VPN_PLUGIN_ERROR_FAILED, "the connection is longer than %d bytes", LONGEST);
  } else {
    g_autoptr(GKeyFile) file = g_key_file_new();
    if (g_key_file_load_from_data(file, text, length, G_KEY_FILE_NONE, error))
      connection = nm_keyfile_read(file, "/", NM_KEYFILE_HANDLER_FLAGS_NONE, NULL, NULL, error);
  }
  /* A password may be in it. */
  explicit_bzero(text, length);
  return connection;
}

static NMVpnEditorPluginCapability capabilities(NMVpnEditorPlugin *plugin) {
  (void)plugin;
  return NM_VPN_EDITOR_PLUGIN_CAPABILITY_IMPORT | NM_VPN_EDITOR_PLUGIN_CAPABILITY_IPV6;
}

static NMVpnEditor *editor(NMVpnEditorPlugin *plugin, NMConnection *connection, GError **error) {
  (void)plugin, (void)connection;
  g_set_error_literal(error, NM_VPN_PLUGIN_ERROR, NM_VPN_PLUGIN_ERROR_FAILED,
                      "Dormouse's connections are edited with nmcli connection modify");
  return NULL;
}

static void get_property(GObject *object, guint id, GValue *value, GParamSpec *spec) {
  switch (id) {
  case PROPERTY_NAME: g_value_set_static_string(value, "Dormouse"); break;
  case PROPERTY_DESCRIPTION: g_value_set_static_string(value, "IPsec (IKEv2) for devices that sleep."); break;
  case PROPERTY_SERVICE: g_value_set_static_string(value, "org.freedesktop.NetworkManager.dormouse"); break;
  default: G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
}

static void dormouse_plugin_init(DormousePlugin *plugin) { (void)plugin; }

static void dormouse_plugin_class_init(DormousePluginClass *class) {
  GObjectClass *object = G_OBJECT_CLASS(class);

  object->get_property = get_property;
  g_object_class_override_property(object, PROPERTY_NAME, NM_VPN_EDITOR_PLUGIN_NAME);
  g_object_class_override_property(object, PROPERTY_DESCRIPTION, NM_VPN_EDITOR_PLUGIN_DESCRIPTION);
  g_object_class_override_property(object, PROPERTY_SERVICE, NM_VPN_EDITOR_PLUGIN_SERVICE);
}

static void interface_init(NMVpnEditorPluginInterface *interface) {
  interface->get_editor = editor;
  interface->get_capabilities = capabilities;
  interface->import_from_file = import;
}

/* The one name that libnm looks for. */
G_MODULE_EXPORT NMVpnEditorPlugin *nm_vpn_editor_plugin_factory(GError **error);

NMVpnEditorPlugin *nm_vpn_editor_plugin_factory(GError **error) {
  (void)error;
  return g_object_new(dormouse_plugin_get_type(), NULL);
}
