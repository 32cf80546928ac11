use(1)
purge()
promote()
return { tostring(now), view() }
