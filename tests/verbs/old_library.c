/* A libibverbs of before 2006: its functions exist with the structures of version 1.0 only. */
int ibv_fork_init(void) { return 0; }
void *ibv_get_device_list(int *count) { if (count) *count = 0; return 0; }
